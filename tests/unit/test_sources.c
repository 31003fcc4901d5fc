/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of sources about CPUs that go offline and online again. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>

#include "agent/sampler/source.h"

static u32 n_calls;

int __wrap_libbpf_num_possible_cpus(void);

int __wrap_libbpf_num_possible_cpus(void)
{
	return 2;
}

/* Acts like a source of perf events, which has an event on each online CPU. */
static void follow(struct source *s, const u32 *cpus, u32 n)
{
	n_calls++;
	vec_clear(&s->events);
	for (u32 i = 0; i < n; i++)
		cr_assert_eq(source_attach(s, (int)cpus[i], -1, NULL), 0);
}

static const struct source_ops per_cpu_ops = {.follow_cpus = follow}, everywhere_ops = {};
static const struct source_row per_cpu = {.ops = &per_cpu_ops},
			       everywhere = {.ops = &everywhere_ops};

static void close_sources(struct source *sources, u32 n)
{
	for (u32 i = 0; i < n; i++)
		vec_deinit(&sources[i].events);
}

Test(sources, tell_once_that_a_cpu_goes_and_returns, .init = cr_redirect_stderr)
{
	static const u32 cpus[] = {0, 1};
	struct source s[] = {{.row = &per_cpu, .is_started = true},
			     {.row = &everywhere, .is_started = true},
			     {.row = &per_cpu, .is_started = true}};

	follow(&s[0], cpus, 2);
	follow(&s[2], cpus, 2);
	cr_assert_eq(source_attach(&s[1], -1, -1, NULL), 0);
	sources_follow_cpus(s, ARRAY_SIZE(s), cpus, 2);
	sources_follow_cpus(s, ARRAY_SIZE(s), cpus, 1);
	sources_follow_cpus(s, ARRAY_SIZE(s), cpus, 1);
	sources_follow_cpus(s, ARRAY_SIZE(s), cpus, 2);
	close_sources(s, ARRAY_SIZE(s));
	fflush(stderr);
	cr_assert_stderr_eq_str("culprit: CPU 1 went offline; samples of it end\n"
				"culprit: CPU 1 is online; sampling it\n");
}

Test(sources, say_nothing_of_cpus_that_they_do_not_sample, .init = cr_redirect_stderr)
{
	static const u32 cpus[] = {0, 1};
	struct source s[] = {{.row = &everywhere, .is_started = true}, {.row = &per_cpu}};

	cr_assert_eq(source_attach(&s[0], -1, -1, NULL), 0);
	sources_follow_cpus(s, ARRAY_SIZE(s), cpus, 1);
	sources_follow_cpus(s, ARRAY_SIZE(s), cpus, 2);
	cr_assert_eq(n_calls, 0, "one follows no CPUs, the other has not started");
	close_sources(s, ARRAY_SIZE(s));
	fputs("end\n", stderr);
	fflush(stderr);
	cr_assert_stderr_eq_str("end\n");
}
