/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual threads in the damaged memory of a JVM. tests/unit/virtual_image.h builds it at a fixed
 * address of this process; the input damages it:
 *
 *	u8	bits: narrow references, compact headers
 *	{u16 index of a word, u64 its new value} …
 */
#include <stdint.h>
#include <stdlib.h>

#include "../unit/virtual_image.h"
#include "base/clock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS 0x2800 /* of the image that can be damaged: up to the last object */

static void on_task(void *arg, const struct runtime_scan *s, const struct runtime_task *task)
{
	(void)arg;
	if (!s->n_drawn || !task->n_words || task->n_words > SAMPLE_MAX_FRAMES ||
	    task->n_words % 2 || task->stop >= STOP_N)
		abort();
	for (u32 i = 0; i < task->n_words; i += 2)
		if (task->words[i] < WORD_RUNTIME)
			abort();
}

static u64 chunk(struct virtual_image *v, u64 parent)
{
	u64 words[64] = {};
	u32 sp = 4, end, n = vi_compiled(words, sp, vi_pc(0x20));

	n = vi_interpreted(words, n, 5, 3, &end);
	words[n - 1] = vi_pc(0xf0);
	words[end + 2] = vi_pc(0x30);
	return vi_chunk(v, words, end + VI_FRAME_WORDS, sp, parent);
}

static void fill(struct virtual_image *v)
{
	u64 table = vi_set(v, vi_static(v, JC_TRACKING, JF_TRACKED), 8);
	u64 registry = vi_set(v, vi_static(v, JC_CONTAINERS, JF_REGISTRY), 4);
	u64 executor = vi_object(v, JC_PER_TASK, 64), weak = vi_object(v, JC_REFERENCE, 64);

	vi_reference(v, weak + v->fields[JF_REFERENT], executor);
	vi_add(v, registry, 0, weak);
	vi_add(v, vi_set(v, executor + v->fields[JF_PER_TASK], 2), 0,
	       vi_thread(v, 1, VI_PARKED, chunk(v, 0)));
	for (u32 i = 2; i < 6; i++)
		vi_add(v, table, i, vi_thread(v, i, VI_PARKED, chunk(v, i % 2 ? chunk(v, 0) : 0)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct virtual_image v;
	static u8 stack[RUNTIME_TASK_BYTES];
	struct runtime_target t;
	u64 random = 1;
	void *state = NULL;

	if (!size)
		return 0;
	if (!vi_build(&v, data[0] & 1, data[0] & 2))
		abort();
	fill(&v);
	t = vi_target(&v);
	/* The second look finds classes in other states than the first one has left them. */
	for (u32 i = 0; i < 2; i++) {
		struct runtime_scan s = {
			.max = 64,
			.until_ns = clock_ns(CLOCK_MONOTONIC) + 100000000,
			.random = &random,
			.stack = stack,
			.task = on_task,
		};

		for (size_t at = 1; (i == 1 || data[0] & 4) && at + 10 <= size; at += 10) {
			u16 index;

			memcpy(&index, data + at, 2);
			memcpy(vi_at(index % WORDS * 8ULL), data + at + 2, 8);
		}
		(void)hotspot_tasks.scan(&t, &v.vm, &v.walker, &state, &s);
	}
	(void)hotspot_virtual_missing(&v.vm, &t);
	hotspot_tasks.drop(state);
	return 0;
}
