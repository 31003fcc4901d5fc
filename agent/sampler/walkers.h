/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads the programs that walk frames of language runtimes while samples are taken already. The
 * kernel takes up to 0.1 s to verify one, and most machines have few runtimes. Until a walker is
 * there, the host finishes the walks that need it (bpf/prog/walk.h). Threads of its own load; all
 * functions are called by the sampler's thread.
 */
#pragma once

#include "agent/sampler/source.h"

struct walkers;

struct walkers_options {
	const struct source *sources; /* loaded; borrowed until walkers_destroy(), as the next */
	struct budget *memory;	      /* of the process, or NULL */
	u32 n_sources;
	bool loop; /* programs use bpf_loop() */
};

/* Nothing is loaded yet. -ENOMEM. */
int walkers_create(const struct walkers_options *o, struct walkers **ret);
/* Waits for the program that is being loaded. NULL is fine. */
void walkers_destroy(struct walkers *w);
/* Loads the walker of the runtime into all sources, unless that has been asked before. */
void walkers_want(struct walkers *w, u32 runtime);
/* As sampler_take_walkers() and sampler_walkers_fd(). */
u32 walkers_take(struct walkers *w);
int walkers_fd(const struct walkers *w);
