/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walkers of all runtimes (bpf/unwind), compiled for the host, over memory that may hold
 * anything. The input:
 *
 *	u8	runtime, modulo their number
 *	u8	bit 0: words of memory are small, so that many are addresses of it
 *	u16	where the walk begins: pc, sp and fp
 *	512 B	what is known of the binary (struct runtime_binary)
 *	104 B	and of the process (struct runtime_process.room)
 *	…	memory from BASE on, over and over
 *
 * Whatever is there, a walk ends, pushes no more frames than there is room for, and ends for
 * a reason that is in abi/tbl/stop.tbl.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wattributes"
#ifdef __x86_64__
#define __TARGET_ARCH_x86
#else
#define __TARGET_ARCH_arm64
#endif
#include "bpf/unwind/runtime.h"

#define BASE 0x10000ULL
#define SPAN 0x10000ULL
#define MAX_CALLS 100000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *memory;
static size_t n_memory;
static bool small;

static struct scratch state;
static struct row_cache cache;
static struct runtime_process process;
static struct runtime_binary binary;
/* The walkers' own buffers: a value for each map that is not one of those above. */
static struct {
	const void *map;
	__u64 value[1024];
} buffers[8];

static void *host_lookup(const void *map, const void *key)
{
	(void)key;
	if (map == &scratch)
		return &state;
	if (map == &row_caches)
		return &cache;
	if (map == &runtime_processes)
		return &process;
	if (map == &runtime_binaries)
		return &binary;
	/* There are no tables: each native frame is in an unknown mapping. */
	if (map == &arena || map == &processes || map == &control)
		return NULL;
	for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++) {
		if (!buffers[i].map)
			buffers[i].map = map;
		if (buffers[i].map == map)
			return buffers[i].value;
	}
	abort();
}

static long host_read(void *to, __u32 n, __u64 avma)
{
	uint8_t *at = to;

	if (avma < BASE || avma - BASE > SPAN || n > BASE + SPAN - avma)
		return -14;
	for (__u32 i = 0; i < n; i++)
		at[i] = memory[(avma - BASE + i) % n_memory];
	for (__u32 i = 0; small && i + 8 <= n; i += 8) {
		__u64 word = BASE | at[i] | (__u64)at[i + 1] << 8;

		memcpy(at + i, &word, 8);
	}
	return 0;
}

static int walk(__u32 runtime)
{
	switch (runtime) {
#define RUNTIME(id, name, ...)                                                                     \
	case RUNTIME_##id:                                                                         \
		return name##_walk();
#include "abi/tbl/runtime.tbl"
#undef RUNTIME
	default:
		return STOP_UNSUPPORTED;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t head = 4 + sizeof(binary) + sizeof(process.room);
	__u32 runtime, calls = 0;
	__u64 at;
	int stop;

	if (size < head + 8)
		return 0;
	runtime = 1 + data[0] % (RUNTIME_N - 1);
	small = data[1] & 1;
	at = BASE + (data[2] | (__u64)data[3] << 8);
	memory = data + head;
	n_memory = size - head;
	memset(&state, 0, sizeof(state));
	memset(&process, 0, sizeof(process));
	memcpy(&binary, data + 4, sizeof(binary));
	memcpy(process.room, data + 4 + sizeof(binary), sizeof(process.room));
	state.out.sample.pid = 1;
	state.walk.regs = (struct walk_regs){.pc = at, .sp = at, .fp = at, .exact = 1};
	state.walk.regs.tls = BASE;
	do {
		__u32 before = state.walk.n;

		stop = walk(runtime);
		if (state.walk.n > SAMPLE_MAX_FRAMES)
			abort();
		/* The BPF programs bound such calls by their loops. */
		calls += before == state.walk.n;
	} while ((stop == WALK_GO || stop == RUNTIME_AGAIN) && calls < MAX_CALLS);
	if (stop >= STOP_N ||
	    (stop < 0 && stop != WALK_GO && stop != RUNTIME_AGAIN && stop != RUNTIME_NATIVE))
		abort();
	return 0;
}
