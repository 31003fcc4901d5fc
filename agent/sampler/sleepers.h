/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of threads that sleep: copies of their memory, which any kernel gives, and walks with the
 * frames of language runtimes by the programs of bpf/prog/sleeper.bpf.c.
 *
 * Most machines have few runtimes, and a walker takes a tenth of a second to load. So each is
 * loaded by a thread of its own, once a process is known that may need it. All functions are called
 * by the sampler's thread.
 */
#pragma once

#include <bpf/libbpf.h>

#include "abi/sample.h"
#include "agent/sampler/sampler.h"

struct sleepers;

struct sleepers_options {
	struct sampler_config config;	/* that of the source that tells of sleepers */
	const struct bpf_object *first; /* has the maps that all objects share; borrowed */
	struct budget *memory;		/* of the process; borrowed, or NULL */
};

/* Nothing is loaded yet. What is borrowed is so until sleepers_destroy(). -ENOMEM. */
int sleepers_create(const struct sleepers_options *o, struct sleepers **ret);
void sleepers_destroy(struct sleepers *s);
/* Copies the stack, to memory that the next call uses again. ret->n is 0: the thread has woken. */
void sleepers_copy(const struct record_deferred *d, struct sampler_copy *ret);
/* As sampler_want_walker(). */
void sleepers_want(struct sleepers *s, u32 runtime);
/* As sampler_walk_sleeper(). */
int sleepers_walk(struct sleepers *s, const struct record_deferred *d,
		  const struct sleeper_walk **ret);
/* As sampler_take_walkers() and sampler_walkers_fd(). */
u32 sleepers_take(struct sleepers *s);
int sleepers_fd(const struct sleepers *s);
