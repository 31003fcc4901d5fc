/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go: the goroutines of a process. Its memory is this process's own, so that wild pointers lead to
 * readable memory, too.
 *
 *	byte 0	offset of goid, in words
 *	byte 1	offset of sched.bp, in words
 *	u16	how many goroutines are drawn
 *	rest	the memory, which begins with the slice allgs; a word 0xfffeNNNN in it is the
 *		address of its byte NNNN
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/runtime/runtime.h"
#include "runtime/go/go.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 4
#define MAX_IMAGE 65536
#define FIRST_WORD 9 /* behind sched.pc */
#define WORDS 22

extern const struct runtime_task_ops go_tasks;

static void on_task(void *arg, const struct runtime_scan *s, const struct runtime_task *task)
{
	u32 *seen = arg;
	u8 sum = 0;

	if (!s->n_drawn || s->n_drawn > s->n_tasks || ++*seen > s->n_drawn)
		abort();
	if (!task->n || task->n > RUNTIME_TASK_BYTES || task->n % RUNTIME_TASK_PAGE ||
	    task->low % RUNTIME_TASK_PAGE || task->sp - task->low >= RUNTIME_TASK_PAGE || !task->pc)
		abort();
	for (u32 i = 0; i < task->n; i++)
		sum ^= task->stack[i];
	__asm__ volatile("" : : "r"(sum));
}

static void make_pointers(u8 *bytes, size_t n)
{
	u64 word;

	for (size_t at = 0; at + 8 <= n; at += 8) {
		memcpy(&word, bytes + at, 8);
		if (word >> 16 != 0xfffe)
			continue;
		word = (u64)bytes + (word & 0xffff) % n;
		memcpy(bytes + at, &word, 8);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runtime_target t = {.memory.pid = (u32)getpid()};
	struct go_goroutines known = {};
	u8 *stack = malloc(RUNTIME_TASK_BYTES), *bytes = NULL;
	u64 random = 7;
	u32 seen = 0;
	u16 max;
	struct runtime_scan s = {.until_ns = ~0ULL,
				 .random = &random,
				 .stack = stack,
				 .task = on_task,
				 .arg = &seen};
	size_t n = size < HEAD + 24 ? 0 : MIN(size - HEAD, (size_t)MAX_IMAGE) & ~7ULL;

	if (n && stack)
		bytes = aligned_alloc(8, n);
	if (bytes) {
		memcpy(bytes, data + HEAD, n);
		make_pointers(bytes, n);
		known.allgs = (u64)bytes;
		known.g_id = (u16)((FIRST_WORD + data[0] % WORDS) * 8);
		known.g_bp = (u16)((FIRST_WORD + data[1] % WORDS) * 8);
		memcpy(&max, data + 2, sizeof(max));
		s.max = max % 1024;
		if (go_tasks.scan(&t, &known, NULL, NULL, &s) == 0 && s.n_unread > s.n_drawn)
			abort();
	}
	free(bytes);
	free(stack);
	return 0;
}
