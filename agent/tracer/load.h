/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maps and programs of a compiled script, in the kernel. Nothing here is attached: a program is
 * loaded once for each (code, program type, attach type, function of the kernel) that probes need.
 */
#pragma once

#include "agent/tracer/tracer.h"
#include "base/diag.h"
#include "base/vec.h"
#include "trace/trace.h"

struct tracer_loaded_program {
	u32 code;
	enum bpf_prog_type type;
	u32 attach_type; /* enum bpf_attach_type, or one that newer kernels have; 0: none */
	u32 btf_id;	 /* of the function or type that it is attached to; 0: none */
	int btf_fd;	 /* borrowed: of the module that the id belongs to; 0: vmlinux */
	int fd;		 /* owned */
};

struct tracer_loaded {
	const struct trace_program *program; /* borrowed */
	u32 cpus;
	int fixed[TRACE_MAPS_OWN];	/* owned, but that of TRACE_MAP_STACKS if `walk` has one */
	vec(int) own;			/* owned; the script's maps */
	const struct tracer_walk *walk; /* borrowed, or NULL */
	vec(struct tracer_loaded_program) programs;
	bool verbose; /* print what the verifier says of a program that it refuses */
};

/* Creates the maps. Undone by tracer_loaded_deinit(), also after a failure. */
int tracer_loaded_init(struct tracer_loaded *l, const struct trace_program *p,
		       const struct tracer_walk *walk, u32 cpus, struct diag *reterr_diag);
void tracer_loaded_deinit(struct tracer_loaded *l);
/*
 * The descriptor of the program for a probe, which is loaded if it is not yet. Borrowed. Or a
 * negative errno; the diag then has the verifier's reason. `name` is the probe's, for it.
 */
int tracer_load(struct tracer_loaded *l, struct tracer_loaded_program want, const char *name,
		struct diag *reterr_diag);
