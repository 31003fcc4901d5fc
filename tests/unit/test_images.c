/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which image a process runs, and in which order listeners learn of it. The tests pass records in
 * the kernel's format, with pids that the kernel never assigns, so that /proc has no such process.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/procman/internal.h"

#define PARENT 50000000u
#define PID 50000001u
#define STACK 0x7ffffffde000ULL

/* The calls of listeners, in order. Several listeners may write to one log. */
struct log {
	char text[1024];
	u64 image;  /* of the process of the last call */
	u64 before; /* the image before the last exec */
};

struct listener {
	struct log *log;
	const char *name;
};

static void note(void *arg, const char *what, const struct procman_process *p)
{
	struct listener *l = arg;
	size_t n = strlen(l->log->text);

	snprintf(l->log->text + n, sizeof(l->log->text) - n, "%s%s-%s", n ? " " : "", l->name,
		 what);
	l->log->image = p->image;
}

static void changed(void *arg, const struct procman_process *p)
{
	note(arg, p->start_stack ? "changed" : "unclear", p);
}

static void exec(void *arg, const struct procman_process *p, u64 before)
{
	struct listener *l = arg;

	note(arg, "exec", p);
	l->log->before = before;
}

static void ended(void *arg, const struct procman_process *p)
{
	note(arg, "ended", p);
}

static void gone(void *arg, const struct procman_process *p)
{
	note(arg, "gone", p);
}

static const struct procman_listener all = {
	.process_changed = changed,
	.process_exec = exec,
	.process_ended = ended,
	.process_gone = gone,
};

/* Makes a procman without side-band events of its own. */
static struct procman *create(struct listener *l)
{
	const struct procman_options o = {
		.no_events = true, .execs_told = true, .exit_linger_ms = 1};
	struct procman *pm = NULL;

	cr_assert_eq(procman_create(&o, &pm), 0);
	cr_assert_eq(procman_listen(pm, &all, l), 0);
	return pm;
}

static void fork_event(struct procman *pm, u64 time_ns)
{
	const struct sideband r = {.type = SIDEBAND_FORK,
				   .time_ns = time_ns,
				   .pid = PID,
				   .tid = PID,
				   .ppid = PARENT,
				   .ptid = PARENT};

	procman_handle(pm, &r, NULL);
}

static void exec_event(struct procman *pm, u64 time_ns)
{
	const struct sideband r = {.type = SIDEBAND_COMM,
				   .time_ns = time_ns,
				   .pid = PID,
				   .tid = PID,
				   .exec = true,
				   .name = "twin"};

	procman_handle(pm, &r, NULL);
}

static void exit_event(struct procman *pm, u64 time_ns)
{
	const struct sideband r = {
		.type = SIDEBAND_EXIT, .time_ns = time_ns, .pid = PID, .tid = PID};

	procman_handle(pm, &r, NULL);
}

static void drain(struct procman *pm)
{
	cr_assert_geq(procman_drain(pm), 0);
}

#define EXPECT_TOLD(log, expected)                                                                 \
	do {                                                                                       \
		cr_expect_str_eq((log).text, expected);                                            \
		(log).text[0] = '\0';                                                              \
	} while (0)

Test(images, of_equal_start_stack_are_told_apart)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	struct procman *pm = create(&l);
	const struct procman_process *p;
	u64 now = now_ns(), first, second;

	fork_event(pm, now);
	exec_event(pm, now + 10);
	procman_learn_exec(pm, PID, now + 20, STACK, 7);
	drain(pm);
	EXPECT_TOLD(log, "a-exec a-changed");
	p = procman_known(pm, PID);
	first = p->image;
	cr_expect(p->start_stack == STACK && p->exec_id == 7);

	/* The listener is called while the event is handled, not at the end of the batch. */
	exec_event(pm, now + 30);
	EXPECT_TOLD(log, "a-exec");
	second = p->image;
	cr_expect_neq(second, first);
	cr_expect_eq(log.before, first);
	cr_expect(!p->start_stack && !p->exec_id, "nothing of the program before");
	drain(pm);
	EXPECT_TOLD(log, "a-unclear");

	/* A late report about the previous program does not count. */
	procman_learn_exec(pm, PID, now + 20, STACK, 7);
	cr_expect_eq(p->exec_id, 0);
	procman_learn_exec(pm, PID, now + 40, STACK, 8);
	drain(pm);
	EXPECT_TOLD(log, "a-changed");
	cr_expect(p->image == second && p->start_stack == STACK && p->exec_id == 8);
	procman_destroy(pm);
}

Test(images, exec_whose_event_was_lost)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	struct procman *pm = create(&l);
	u64 now = now_ns(), first;

	fork_event(pm, now);
	exec_event(pm, now + 10);
	procman_learn_exec(pm, PID, now + 20, STACK, 7);
	drain(pm);
	first = procman_known(pm, PID)->image;
	log.text[0] = '\0';
	procman_learn_exec(pm, PID, now + 40, STACK, 8);
	drain(pm);
	EXPECT_TOLD(log, "a-exec a-changed");
	cr_expect_eq(log.before, first);
	cr_expect_neq(procman_known(pm, PID)->image, first);
	cr_expect_eq(procman_known(pm, PID)->image_ns, now + 40);
	procman_destroy(pm);
}

Test(images, a_child_is_another)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	struct procman *pm = create(&l);
	const struct sideband grandchild = {
		.type = SIDEBAND_FORK, .pid = PID + 1, .tid = PID + 1, .ppid = PID, .ptid = PID};
	u64 now = now_ns();

	fork_event(pm, now);
	exec_event(pm, now + 10);
	procman_learn_exec(pm, PID, now + 20, STACK, 7);
	procman_handle(pm, &grandchild, NULL);
	drain(pm);
	cr_expect_eq(procman_known(pm, PID + 1)->exec_id, 7, "as in the kernel");
	cr_expect_neq(procman_known(pm, PID + 1)->image, procman_known(pm, PID)->image);
	procman_destroy(pm);
}

/* procman notices by itself that another process has the pid. */
Test(images, pid_used_again)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	struct procman *pm = create(&l);
	u64 now = now_ns(), first, second, deadline = now + 10000000000ULL;

	fork_event(pm, now);
	drain(pm);
	first = procman_known(pm, PID)->image;
	exit_event(pm, now + 10);
	fork_event(pm, now + 20);
	second = procman_known(pm, PID)->image;
	cr_expect_neq(second, first);
	drain(pm);
	cr_expect(strstr(log.text, "a-unclear a-ended a-unclear") == log.text, "%s", log.text);
	while (!strstr(log.text, "gone") && now_ns() < deadline)
		drain(pm);
	EXPECT_TOLD(log, "a-unclear a-ended a-unclear a-gone");
	cr_expect_eq(log.image, first);
	cr_expect_eq(procman_known(pm, PID)->image, second);
	procman_destroy(pm);
	/* The parent of the fork is unknown. */
	EXPECT_TOLD(log, "a-ended a-gone");
	cr_expect_eq(log.image, second);
}

Test(images, listeners_are_told_in_their_order)
{
	static const struct procman_listener only_exec = {.process_exec = exec};
	struct log log = {};
	struct listener a = {&log, "a"}, b = {&log, "b"}, c = {&log, "c"};
	struct procman *pm = create(&a);
	u64 now = now_ns();

	cr_assert_eq(procman_listen(pm, &only_exec, &b), 0);
	cr_assert_eq(procman_listen(pm, &all, &c), 0);
	fork_event(pm, now);
	exec_event(pm, now + 10);
	procman_learn_exec(pm, PID, now + 20, STACK, 7);
	drain(pm);
	EXPECT_TOLD(log, "a-exec b-exec c-exec a-changed c-changed");
	procman_destroy(pm);
	EXPECT_TOLD(log, "a-ended c-ended a-gone c-gone");
}

Test(images, as_many_listeners_as_there_is_room_for)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	struct procman *pm = create(&l);

	for (u32 i = 1; i < PROCMAN_MAX_LISTENERS; i++)
		cr_expect_eq(procman_listen(pm, &all, &l), 0);
	cr_expect_eq(procman_listen(pm, &all, &l), -ENOSPC);
	procman_destroy(pm);
}

static bool refuse(void *arg, const struct procman_process *p)
{
	return *(u32 *)arg != p->pid;
}

/* procman also follows a process that is_wanted() refuses, and reports its ended images. */
Test(images, of_processes_that_nobody_wants)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	u32 refused = PID;
	const struct procman_options o = {.no_events = true, .is_wanted = refuse, .arg = &refused};
	struct procman *pm = NULL;
	u64 now = now_ns();

	cr_assert_eq(procman_create(&o, &pm), 0);
	cr_assert_eq(procman_listen(pm, &all, &l), 0);
	fork_event(pm, now);
	exec_event(pm, now + 10);
	drain(pm);
	EXPECT_TOLD(log, "a-exec");
	cr_expect_not_null(procman_known(pm, PID));
	procman_destroy(pm);
}

/* An agent that reloads its options has two procmans for a while, but one set of identities. */
Test(images, of_two_procmans_have_no_number_in_common)
{
	struct log log = {};
	struct listener l = {&log, "a"};
	struct procman *one = create(&l), *two;
	u64 last = 0;

	for (u32 i = 0; i < 1000; i++)
		exec_event(one, now_ns());
	last = procman_known(one, PID)->image;
	two = create(&l);
	fork_event(two, now_ns());
	cr_expect_gt(procman_known(two, PID)->image, last);
	procman_destroy(one);
	procman_destroy(two);
}
