/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/alloc/calibrate.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/alloc/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/proc.h"

#define ROUNDS 9
#define CALLS 200
/* Calls after which none is drawn any more, see draw() in bpf/prog/alloc.bpf.c. */
#define WARM_CALLS 2000

/* No probe takes less. */
#define LEAST_NS 200ULL

/* Two functions that return 0. The kernel emulates a push, and steps a move. */
#ifdef __x86_64__
asm(".text\n"
    ".type alloc_calibrate_emulated, @function\n"
    "alloc_calibrate_emulated: push %rbp; xor %eax, %eax; pop %rbp; ret\n"
    ".size alloc_calibrate_emulated, . - alloc_calibrate_emulated\n"
    ".type alloc_calibrate_stepped, @function\n"
    "alloc_calibrate_stepped: mov %rdi, %rax; xor %eax, %eax; ret\n"
    ".size alloc_calibrate_stepped, . - alloc_calibrate_stepped\n");
#else
asm(".text\n"
    ".type alloc_calibrate_emulated, @function\n"
    "alloc_calibrate_emulated: nop; mov x0, #0; ret\n"
    ".size alloc_calibrate_emulated, . - alloc_calibrate_emulated\n"
    ".type alloc_calibrate_stepped, @function\n"
    "alloc_calibrate_stepped: mov x1, x0; mov x0, #0; ret\n"
    ".size alloc_calibrate_stepped, . - alloc_calibrate_stepped\n");
#endif
void *alloc_calibrate_emulated(u64 bytes);
void *alloc_calibrate_stepped(u64 bytes);

struct place { /* of code, in this program's file */
	u64 avma, foff;
};

static int find_place(void *arg, const struct proc_mapping *m)
{
	struct place *p = arg;

	if (p->avma < m->start || p->avma >= m->end)
		return 0;
	p->foff = m->offset + (p->avma - m->start);
	return 1;
}

static int compare(const void *pa, const void *pb)
{
	const u64 *a = pa, *b = pb;

	return (*a > *b) - (*a < *b);
}

/* Nanoseconds of a call: the median of several rounds. */
static u64 time_calls(void *(*call)(u64 bytes))
{
	u64 rounds[ROUNDS];

	for (u32 i = 0; i < ROUNDS; i++) {
		u64 begin = clock_ns(CLOCK_MONOTONIC);

		for (u32 k = 0; k < CALLS; k++)
			(void)call(k & 1);
		rounds[i] = (clock_ns(CLOCK_MONOTONIC) - begin) / CALLS;
	}
	qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
	return rounds[ROUNDS / 2];
}

struct trial {
	void *(*call)(u64 bytes);
	u8 function;
	bool drawn; /* each call is */
};

static int run_trial(const struct alloc_programs *p, int fd, const struct trial *t, u64 *ret_ns)
{
	struct alloc_process entry = {.open = 1, .window = 1, .walks = t->drawn ? 0 : 1};
	struct alloc_probes probes = ALLOC_PROBES_NONE;
	struct place place = {.avma = (u64)t->call};
	struct alloc_sites sites = {.n = 1};
	u32 pid = (u32)getpid();
	int r = proc_maps_read(pid, 0, find_place, &place);

	if (r != 1)
		return r < 0 ? r : -ENOENT;
	sites.site[0] = (struct alloc_site){.foff = place.foff, .function = t->function};
	if (bpf_map_update_elem(p->processes, &pid, &entry, BPF_ANY) < 0)
		return -errno;
	r = alloc_attach(p, pid, fd, &sites, &probes);
	if (r == 0) {
		for (u32 i = 0; i < WARM_CALLS && !t->drawn; i++)
			(void)t->call(0);
		*ret_ns = time_calls(t->call);
		alloc_detach(&probes);
	}
	(void)bpf_map_delete_elem(p->processes, &pid);
	return r;
}

int alloc_calibrate(const struct alloc_programs *p, struct alloc_costs *ret)
{
	/* Without sessions each return is probed, but that of free() never is. */
	u8 begins = p->session ? ALLOC_MALLOC : ALLOC_FREE;
	const struct trial trials[] = {
		{alloc_calibrate_emulated, begins, false},
		{alloc_calibrate_stepped, begins, false},
		{alloc_calibrate_emulated, ALLOC_MALLOC, true},
	};
	_cleanup_close_ int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	u64 ns[ARRAY_SIZE(trials)];
	int r = fd < 0 ? -errno : 0;

	for (size_t i = 0; i < ARRAY_SIZE(trials) && r == 0; i++)
		r = run_trial(p, fd, &trials[i], &ns[i]);
	if (r < 0)
		return r;
	*ret = (struct alloc_costs){
		.emulated_ns = MAX(ns[0], LEAST_NS),
		.stepped_ns = MAX(ns[1], LEAST_NS),
		.return_ns = ns[2] > ns[0] ? ns[2] - ns[0] : 0,
	};
	return 0;
}
