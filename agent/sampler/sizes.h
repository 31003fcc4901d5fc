/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of what is allocated at the start and never shrinks: BPF maps, the ring of samples, the
 * rings of side-band events, buffers for copies of stacks. Most of it is per CPU: with 256 CPUs and
 * without a limit it is 113 MiB at 20 Hz. Under a memory limit the rings are made smaller until all
 * of it fits a quarter of the limit.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct sizes_input {
	u32 cpus;	  /* that can be */
	u64 hz;		  /* samples a second on each CPU, of all sources */
	u64 cpu_bytes;	  /* of one CPU: states of samples, row cache, notes of walkers */
	u64 shared_bytes; /* of maps whose size does not depend on the number of CPUs */
	u64 ring_bytes;	  /* of the ring of samples, as asked for; 0: by `cpus` and `hz` */
	u64 limit_bytes;  /* of the process; 0: none */
};

struct sizes {
	u64 ring_bytes;	      /* of the ring of samples; a power of two */
	u32 event_ring_bytes; /* of each CPU's ring of side-band events; a power of two */
	u32 copies;	      /* of stacks that are kept at a time */
	u64 fixed_bytes;      /* all together */
};

/* -ENOMEM: it takes more than half of the limit; the diag names the smallest limit that works. */
int sizes_choose(const struct sizes_input *in, struct sizes *ret, struct diag *reterr_diag);
