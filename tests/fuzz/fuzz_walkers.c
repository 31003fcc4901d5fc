/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walkers of all runtimes (bpf/unwind), compiled for the host, over memory with any content.
 * The input:
 *
 *	u8	runtime, modulo the number of runtimes
 *	u8	bit 0: each word of memory is an address in the memory; bit 1: pc is in code of a
 *		JIT; bit 2: pc is a return address; bit 3: all registers are known
 *	u16	pc, sp and fp at the begin of the walk, as an offset from BASE
 *	512 B	struct runtime_binary
 *	104 B	struct runtime_process.room
 *	…	the memory from BASE on; repeated up to its end
 *
 * Every walk must end, with a reason in abi/tbl/stop.tbl, and must not push more frames than a
 * sample has room for.
 */
#include <stdint.h>

#include "tests/host/walkers.h"

#define BASE 0x10000ULL
#define SPAN 0x10000ULL
#define MAX_CALLS 100000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *memory;
static size_t n_memory;
static bool small;

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t head = 4 + sizeof(host_binary) + sizeof(host_process.room);
	__u32 runtime, calls = 0;
	struct walk_regs regs;
	struct scratch *s;
	__u64 at;
	int stop;

	if (size < head + 8)
		return 0;
	runtime = 1 + data[0] % (RUNTIME_N - 1);
	small = data[1] & 1;
	at = BASE + (data[2] | (__u64)data[3] << 8);
	memory = data + head;
	n_memory = size - head;
	memset(&host_process, 0, sizeof(host_process));
	memcpy(&host_binary, data + 4, sizeof(host_binary));
	memcpy(host_process.room, data + 4 + sizeof(host_binary), sizeof(host_process.room));
	regs = (struct walk_regs){.pc = at,
				  .sp = at,
				  .fp = at,
				  .exact = !(data[1] & 4),
				  .full = data[1] >> 3 & 1,
				  .tls = BASE};
	for (__u32 i = 0; i < UNWIND_N_REGS; i++)
		regs.r[i] = at;
	s = host_begin(runtime, &regs);
	if (data[1] & 2)
		s->walk.mapping.file = UNWIND_MAPPING_FP;
	do {
		__u32 before = s->walk.n;

		stop = runtime_walk(runtime);
		if (s->walk.n > SAMPLE_MAX_FRAMES)
			abort();
		/* In BPF the loop bounds the number of calls that push no frame. */
		calls += before == s->walk.n;
	} while ((stop == WALK_GO || stop == RUNTIME_AGAIN) && calls < MAX_CALLS);
	if (stop >= STOP_N ||
	    (stop < 0 && stop != WALK_GO && stop != RUNTIME_AGAIN && stop != RUNTIME_NATIVE))
		abort();
	return 0;
}
