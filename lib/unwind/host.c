/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/host.h"

#include <stdbool.h>

struct walk_env {
	const struct unwind_host *host;
	struct walk_row *row;
};

static const void *walk_line(struct walk_env *env, u32 line)
{
	return env->host->line(env->host->arg, line);
}

static int walk_read(struct walk_env *env, void *to, u32 n, u64 avma)
{
	return env->host->read(env->host->arg, to, n, avma);
}

static u64 walk_strip(struct walk_env *env, u64 pc)
{
	return pc & ~env->host->pac_mask;
}

/* Always true: only the walking thread changes the tables. */
static bool walk_in_time(struct walk_env *env)
{
	(void)env;
	return true;
}

#include "walk/walk.h"

#define LOAD_REST_FRAMES 1024

/* Not cached, because host walks are rare. */
walk_inline struct walk_row *walk_row_at(struct walk_env *env, const struct walk *w, u64 pc)
{
	(void)w;
	(void)pc;
	*env->row = (struct walk_row){};
	return env->row;
}

/*
 * The walk stops at frames that only BPF can read. BPF may have passed the walk to the host because
 * of a missing page, so load_rest() loads the pages of all further frames, and BPF finds them next
 * time.
 */
static void load_rest(struct walk_env *env, struct walk w)
{
	const struct unwind_host *host = env->host;
	u64 asked = 0, frame;
	int stop = WALK_GO;

	for (u32 i = 0; host->missing && i < LOAD_REST_FRAMES && stop == WALK_GO; i++) {
		u64 pc = walk_pc(&w.regs);

		w.native = 1;
		stop = walk_step(env, &w, &frame);
		if (stop == STOP_NOT_LOADED && asked != pc && host->missing(host->arg, pc) == 0) {
			asked = pc;
			w.have_mapping = 0;
			stop = WALK_GO;
		}
	}
}

/*
 * Asks the caller about a frame in a runtime's mapping. WALK_GO: use the mapping's rows; or
 * STOP_RUNTIME.
 */
static int ask_runtime(const struct unwind_host *host, struct walk *w, u64 pc, u64 *ret_note)
{
	enum unwind_host_runtime what = UNWIND_HOST_NATIVE;

	if (host->runtime)
		what = host->runtime(host->arg, walk_runtime(w), pc, ret_note);
	w->native = 1;
	return what == UNWIND_HOST_STOP ? STOP_RUNTIME : WALK_GO;
}

enum stop_reason unwind_host_walk(const struct unwind_host *host, struct walk_regs *regs, u32 slice,
				  u32 n_mappings, u64 *frames, u32 max, u32 *n)
{
	struct walk w = {.regs = *regs, .slice = slice, .n_mappings = n_mappings};
	struct walk_row row;
	struct walk_env env = {host, &row};
	u64 asked = 0; /* pc whose page was requested; each is requested once */
	u64 note = 0;  /* the frame that replaces a runtime's frames; 0: none */
	int stop = WALK_GO;

	while (stop == WALK_GO) {
		u64 frame, pc = walk_pc(&w.regs);

		if (*n >= max) {
			stop = STOP_TOO_DEEP;
			break;
		}
		stop = walk_step(&env, &w, &frame);
		if (stop == WALK_SWITCH)
			stop = walk_switch(&env, &w);
		if (stop == STOP_NOT_LOADED && asked != pc && host->missing &&
		    host->missing(host->arg, pc) == 0) {
			asked = pc;
			w.have_mapping = 0; /* the binary's record may have changed */
			stop = WALK_GO;
			continue;
		}
		if (stop == WALK_RUNTIME) {
			stop = ask_runtime(host, &w, pc, &note);
			if (stop == STOP_RUNTIME)
				load_rest(&env, w);
			continue;
		}
		if (walk_can_resume(stop))
			break;
		if (!note || !*n || frames[*n - 1] != note)
			frames[(*n)++] = note ? note : frame;
		note = 0;
	}
	*regs = w.regs;
	return (enum stop_reason)stop;
}

bool unwind_host_can_help(int stop, u32 n)
{
	return walk_can_resume(stop) || walk_has_strayed(stop, n);
}

u64 unwind_host_pc(const struct walk_regs *regs)
{
	return walk_pc(regs);
}

u64 unwind_host_raw_frame(const struct walk_regs *regs)
{
	return WORD_RAW | walk_pc(regs);
}

u64 unwind_host_stack_id(const u64 *frames, u32 n, u32 stop)
{
	u64 hash = 0;

	for (u32 i = 0; i < n; i++)
		hash = walk_mix(hash, frames[i]);
	return walk_stack_id(hash, stop);
}
