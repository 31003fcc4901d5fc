/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/diag.h"
#include "base/map.h"
#include "base/quota.h"
#include "base/str.h"
#include "base/vec.h"

#define MIB ((size_t)1 << 20)

/* Criterion's functions allocate: values are read under the quota and judged after it. */
static u64 held(const struct quota_pool *p)
{
	return atomic_load(&p->used);
}

Test(quota, charges_containers_and_gives_back)
{
	struct quota_pool pool = {.limit_bytes = 64 * MIB};
	struct quota q = {.limits = {.pool = &pool, .bytes = 32 * MIB}};
	struct arena arena = ARENA_INIT(4 * MIB);
	vec(u64) numbers = {};
	struct strtab names;
	struct map map = {};
	struct str s = {};
	u64 full, empty, pool_full;
	int r;

	quota_begin(&q);
	r = strtab_init(&names);
	for (u64 i = 0; r == 0 && i < 100000; i++) {
		u32 id;

		r = vec_push(&numbers, i);
		r = r < 0 ? r : map_put(&map, i, i);
		r = r < 0 ? r : strtab_add(&names, (char *)&i, sizeof(i), &id);
		r = r < 0 ? r : str_append(&s, &i, sizeof(i));
	}
	r = arena_alloc(&arena, MIB) ? r : -ENOMEM;
	full = q.used;
	pool_full = held(&pool);
	vec_deinit(&numbers);
	map_deinit(&map);
	strtab_deinit(&names);
	str_deinit(&s);
	arena_deinit(&arena);
	empty = q.used;
	quota_end(&q);
	cr_assert_eq(r, 0);
	cr_assert_gt(full, 8 * MIB, "%llu", full);
	cr_assert_geq(pool_full, full);
	cr_assert_eq(empty, 0);
	cr_assert_geq(q.peak, full);
	cr_assert_eq(held(&pool), 0);
}

Test(quota, refuses_above_its_limit_and_says_so)
{
	struct quota q = {.limits = {.bytes = MIB}};
	struct diag d = {};
	/* volatile: the compiler knows malloc(), and would leave out what is not used. */
	void *volatile small, *volatile large, *volatile array, *volatile grown;
	struct str s = {};
	char *volatile copy;
	int r = 0, why, kept;

	quota_begin(&q);
	small = malloc(1000);
	kept = quota_check(NULL);
	large = malloc(2 * MIB);
	array = calloc(MIB, 2);
	grown = realloc(small, 2 * MIB);
	copy = strdup("text");
	for (size_t i = 0; r == 0 && i < 2 * MIB; i++)
		r = str_putc(&s, 'x');
	why = quota_check(&d);
	free(small);
	free(copy);
	str_deinit(&s);
	quota_end(&q);
	cr_assert_eq(kept, 0);
	cr_assert_null(large);
	cr_assert_null(array);
	cr_assert_null(grown);
	cr_assert_not_null(copy);
	cr_assert_eq(r, -ENOMEM);
	cr_assert_eq(why, -EDQUOT);
	cr_assert_str_eq(d.text, "the request needs more than 1 MiB of memory");
	cr_assert_leq(q.peak, MIB);
	cr_assert_eq(quota_check(NULL), 0, "without a quota nothing is refused");
}

Test(quota, threads_share_a_pool)
{
	struct quota_pool pool = {.limit_bytes = 8 * MIB};
	struct quota a = {.limits = {.pool = &pool}}, b = a;
	struct diag d = {};
	void *volatile first, *volatile second, *volatile third;
	int why, other;

	quota_begin(&a);
	first = malloc(6 * MIB);
	quota_begin(&b); /* as another thread would */
	second = malloc(4 * MIB);
	why = quota_why(&d);
	quota_end(&b);
	other = quota_why(NULL);
	free(first);
	quota_end(&a);
	quota_begin(&b);
	third = malloc(4 * MIB);
	free(third);
	quota_end(&b);
	cr_assert_not_null(first);
	cr_assert_null(second);
	cr_assert_eq(why, -ENOMEM);
	cr_assert(strstr(d.text, "8 MiB"), "%s", d.text);
	cr_assert_eq(other, 0);
	cr_assert_not_null(third);
	cr_assert_eq(held(&pool), 0);
	cr_assert_eq(atomic_load(&pool.refused), 1);
}

static void *free_it(void *p)
{
	free(p);
	return NULL;
}

Test(quota, what_another_thread_frees_is_charged_until_the_end)
{
	struct quota_pool pool = {.limit_bytes = 8 * MIB};
	struct quota q = {.limits = {.pool = &pool}};
	void *volatile before = malloc(2 * MIB), *volatile p;
	pthread_t thread;
	u64 used;
	int r;

	quota_begin(&q);
	free(before); /* was never charged */
	p = malloc(4 * MIB);
	used = q.used;
	r = pthread_create(&thread, NULL, free_it, p);
	if (r == 0)
		r = pthread_join(thread, NULL);
	quota_end(&q);
	cr_assert_eq(r, 0);
	cr_assert_geq(used, 4 * MIB);
	cr_assert_eq(held(&pool), 0);
}

Test(quota, charges_jansson)
{
	struct quota q = {.limits = {.bytes = MIB}};
	struct str text = {};
	json_t *j;
	int why;

	quota_start();
	str_putc(&text, '[');
	for (int i = 0; i < 100000; i++)
		str_puts(&text, "[],");
	str_puts(&text, "0]");
	quota_begin(&q);
	j = json_loadb(str_get(&text), text.n, 0, NULL);
	why = quota_why(NULL);
	quota_end(&q);
	str_deinit(&text);
	cr_assert_null(j);
	cr_assert_eq(why, -EDQUOT);
}

static int check_for(u64 ns)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + ns;
	int r = 0;

	while (r == 0 && clock_ns(CLOCK_MONOTONIC) < until)
		r = quota_check(NULL);
	return r;
}

static bool is_gone(void *userdata)
{
	return ++*(u32 *)userdata > 2;
}

Test(quota, ends_with_the_time_or_the_client)
{
	u32 asked = 0;
	struct quota time = {.limits = {.time_ns = 20000000}};
	struct quota cpu = {.limits = {.cpu_ns = 20000000}};
	struct quota gone = {.gone = is_gone, .userdata = &asked};
	struct diag d = {};
	int r[3], again;

	quota_begin(&time);
	r[0] = check_for(2000000000ULL);
	again = quota_check(&d);
	quota_end(&time);
	quota_begin(&cpu);
	r[1] = check_for(5000000000ULL);
	quota_end(&cpu);
	quota_begin(&gone);
	r[2] = check_for(5000000000ULL);
	quota_end(&gone);
	cr_assert_eq(r[0], -ETIMEDOUT);
	cr_assert_eq(again, -ETIMEDOUT);
	cr_assert(strstr(d.text, "0.02 s"), "%s", d.text);
	cr_assert_eq(r[1], -ETIMEDOUT);
	cr_assert_eq(r[2], -ECANCELED);
	cr_assert_eq(asked, 3);
}
