/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a process whose own attributes arrive late. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/identity/identity.h"
#include "base/clock.h"

/*
 * Simulates an exec event before the end of the exec: the shell has no service name until it reads
 * a line, and then executes the same program with one.
 */
static const char script[] = "echo; read x; OTEL_SERVICE_NAME=shop exec /bin/sh -c 'echo; read x'";

struct child {
	pid_t pid;
	FILE *to, *from;
};

static struct child begin(void)
{
	struct child c = {};
	int to[2], from[2];

	cr_assert_eq(pipe(to), 0);
	cr_assert_eq(pipe(from), 0);
	c.pid = fork();
	cr_assert_geq(c.pid, 0);
	if (!c.pid) {
		static char *const nothing[] = {NULL};

		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		close(to[1]);
		close(from[0]);
		execle("/bin/sh", "sh", "-c", script, NULL, nothing);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	c.to = fdopen(to[1], "w");
	c.from = fdopen(from[0], "r");
	cr_assert_eq(fgetc(c.from), '\n');
	return c;
}

static void go_on(struct child *c)
{
	fputc('\n', c->to);
	fflush(c->to);
	cr_assert_eq(fgetc(c->from), '\n');
}

static void end(struct child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	fclose(c->to);
	fclose(c->from);
}

/* Returns the service name that a sample of the process would get. */
static const char *service(struct identities *s, const struct procman_process *p,
			   struct profile *into)
{
	u32 resource = 0;

	cr_assert_eq(identities_resource(s, p->image, "sh", into, &resource), 0);
	return profile_label(into, resource, "service.name");
}

static void expect(struct identities *s, const struct procman_process *p, const char *name)
{
	_cleanup_profile_ struct profile *into = profile_create();

	cr_expect_str_eq(service(s, p, into), name);
}

/* Declares a process with the shell's executable, as procman reports it. */
#define SHELL(process, child, since)                                                               \
	struct procman_binary process##_binary = {.path = "/bin/sh"};                              \
	struct procman_mapping process##_mapping = {.binary = &process##_binary};                  \
	struct procman_process process = {                                                         \
		.pid = (u32)(child).pid,                                                           \
		.image = (u32)(child).pid,                                                         \
		.image_ns = since,                                                                 \
		.alive = true,                                                                     \
		.mappings = &process##_mapping,                                                    \
		.n = 1,                                                                            \
	};                                                                                         \
	struct stat process##_stat;                                                                \
	cr_assert_eq(stat("/bin/sh", &process##_stat), 0);                                         \
	process##_binary.inode = process##_stat.st_ino

Test(identity, environment_that_comes_late)
{
	_cleanup_identities_ struct identities *s = NULL;
	struct child c = begin();
	SHELL(p, c, clock_ns(CLOCK_MONOTONIC));
	_cleanup_profile_ struct profile *first = profile_create();

	cr_assert_eq(identities_create(&s), 0);
	cr_expect(!identities_see(s, &p, NULL), "its environment may still come");
	cr_expect_neq(strcmp(service(s, &p, first), "shop"), 0);
	cr_expect(!identities_see(s, &p, NULL));
	go_on(&c);
	cr_expect(identities_see(s, &p, NULL));
	expect(s, &p, "shop");
	end(&c);
	/* The name stays. */
	cr_expect(identities_see(s, &p, NULL));
	expect(s, &p, "shop");
}

/* A process that was idle until its identity expires: its samples are named after the sweep. */
Test(identity, process_that_is_seen_again_when_it_was_about_to_be_forgotten)
{
	_cleanup_identities_ struct identities *s = NULL;
	struct child c = begin();
	SHELL(p, c, clock_ns(CLOCK_MONOTONIC));

	go_on(&c);
	cr_assert_eq(identities_create(&s), 0);
	for (int idle = 0; idle < 5; idle++) {
		cr_expect(identities_see(s, &p, NULL));
		identities_sweep(s);
		expect(s, &p, "shop");
		for (int i = 0; i < idle; i++)
			identities_sweep(s);
	}
	end(&c);
}

Test(identity, process_that_is_gone_before_its_environment_came)
{
	_cleanup_identities_ struct identities *s = NULL;
	struct child c = begin();
	SHELL(p, c, clock_ns(CLOCK_MONOTONIC));
	_cleanup_profile_ struct profile *before = profile_create();
	const char *name;

	cr_assert_eq(identities_create(&s), 0);
	cr_expect(!identities_see(s, &p, NULL));
	name = service(s, &p, before);
	end(&c);
	cr_expect(identities_see(s, &p, NULL), "there is nobody to ask again");
	expect(s, &p, name);
}

Test(identity, process_without_an_environment)
{
	_cleanup_identities_ struct identities *s = NULL;
	struct child c = begin();
	SHELL(p, c, 1);

	cr_assert_eq(identities_create(&s), 0);
	cr_expect(identities_see(s, &p, NULL), "its exec was long ago");
	end(&c);
}

Test(identity, what_it_says_counts_more_than_an_environment_that_comes_late)
{
	static const struct context_label said = {"service.name", "said"};
	_cleanup_identities_ struct identities *s = NULL;
	struct child c = begin();
	SHELL(p, c, clock_ns(CLOCK_MONOTONIC));

	cr_assert_eq(identities_create(&s), 0);
	cr_expect(!identities_see(s, &p, NULL));
	identities_say(s, &p, &said, 1);
	go_on(&c);
	cr_expect(identities_see(s, &p, NULL));
	expect(s, &p, "said");
	end(&c);
}

/* Adds processes with large attributes and unused pids. */
static void many_say(struct identities *s, u32 first_pid, u32 n)
{
	char name[32], values[16][1001];
	struct context_label said[17] = {{"service.name", name}};

	for (u32 i = 0; i < n; i++) {
		struct procman_process p = {
			.pid = first_pid + i, .image = first_pid + i, .image_ns = 1, .alive = true};

		snprintf(name, sizeof(name), "service-%u", p.pid);
		for (u32 j = 0; j < 16; j++) {
			static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h",
							    "i", "j", "k", "l", "m", "n", "o", "p"};

			memset(values[j], 'x', sizeof(values[j]) - 1);
			snprintf(values[j], sizeof(values[j]), "%u.%u.%0990u", p.pid, j, 0);
			said[1 + j] = (struct context_label){names[j], values[j]};
		}
		identities_say(s, &p, said, ARRAY_SIZE(said));
	}
}

static void expect_services(struct identities *s, u32 first_pid, u32 n)
{
	_cleanup_profile_ struct profile *into = profile_create();

	for (u32 i = 0; i < n; i++) {
		struct procman_process p = {.pid = first_pid + i, .image = first_pid + i};
		char name[32];

		snprintf(name, sizeof(name), "service-%u", p.pid);
		cr_assert_str_eq(service(s, &p, into), name);
	}
}

/* The sweep at the end of a period comes before the period's samples are named. */
Test(identity, texts_past_their_limit_cost_no_identity_of_the_period)
{
	_cleanup_identities_ struct identities *s = NULL;

	cr_assert_eq(identities_create(&s), 0);
	for (u32 period = 0; period < 6; period++) {
		many_say(s, 100000000 + 1000 * period, 400);
		identities_sweep(s);
		expect_services(s, 100000000 + 1000 * period, 400);
	}
	cr_expect_eq(identities_left_out(s), 0);
}

/* If the attributes of the processes exceed the limit, only service names are kept. */
Test(identity, texts_of_too_many_processes_are_left_out_and_counted)
{
	_cleanup_identities_ struct identities *s = NULL;

	cr_assert_eq(identities_create(&s), 0);
	many_say(s, 100000000, 4000);
	cr_expect_gt(identities_left_out(s), 0);
	identities_sweep(s);
	expect_services(s, 100000000, 4000);
}
