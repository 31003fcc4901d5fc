/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary the version of Lua and where the interpreter's loop is. The loop,
 * luaV_execute(), is no exported symbol: it is the largest function that the exported lua_call()
 * reaches by few calls.
 */
#include <errno.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/lua/lua.h"

#define MAX_FUNCTION_BYTES (1u << 16)
#define MIN_LOOP_BYTES 3000
#define MAX_CALLS 3 /* from lua_call() to the loop */
#define MAX_REACHED 256

/* ---- the version ---- */

/* "$LuaVersion: Lua 5.4.4 " or, in 5.1, "$Lua: Lua 5.1.5 " (lapi.c) */
static bool find_version(struct elf_file *elf, struct lua_learned *l)
{
	static const char mark[] = ": Lua 5.";
	const u8 *at;
	struct buf bytes;

	if (elf_file_section(elf, ".rodata", NULL, &bytes) < 0)
		return false;
	at = memmem(bytes.pos, buf_left(&bytes), mark, strlen(mark));
	if (!at)
		return false;
	at += strlen(mark);
	if (bytes.end - at < 4 || at[0] < '0' || at[0] > '9')
		return false;
	l->version = 0x0500u | (u32)(at[0] - '0');
	if (at[1] == '.' && at[2] >= '0' && at[2] <= '9')
		l->release = (u32)(at[2] - '0');
	return true;
}

/* ---- the loop ---- */

struct search {
	struct elf_file *elf;
	struct runtime_functions functions; /* owned */
	/* Functions that are reached, and by how many calls. */
	const struct runtime_range *reached[MAX_REACHED];
	u32 depth[MAX_REACHED];
	u32 n, at; /* `at`: the one whose calls are followed */
};

static void reach(struct search *s, u64 svma, u32 depth)
{
	const struct runtime_range *f = runtime_function_at(&s->functions, svma);

	if (!f || f->start != svma || s->n == MAX_REACHED)
		return;
	for (u32 i = 0; i < s->n; i++)
		if (s->reached[i] == f)
			return;
	s->reached[s->n] = f;
	s->depth[s->n++] = depth;
}

static bool follow_insn(void *arg, u64 svma, const u8 *bytes, const struct disasm_insn *insn)
{
	struct search *s = arg;

	if (insn->flow == DISASM_CALL || insn->flow == DISASM_JUMP)
		reach(s, insn->target, s->depth[s->at] + 1);
	return false;
}

/* Finds the largest function that is reached from the first one. */
static bool find_largest(struct search *s, struct runtime_range *ret)
{
	struct runtime_range best = {};

	for (s->at = 0; s->at < s->n; s->at++) {
		const struct runtime_range *f = s->reached[s->at];

		if (f->end - f->start > best.end - best.start)
			best = *f;
		if (s->depth[s->at] < MAX_CALLS && f->end - f->start <= MAX_FUNCTION_BYTES)
			(void)runtime_sweep(s->elf, f, follow_insn, s);
	}
	*ret = best;
	return best.end - best.start >= MIN_LOOP_BYTES;
}

static int find_loop(struct elf_file *elf, struct lua_binary *b)
{
	struct search s = {.elf = elf};
	u64 at;
	int r;

	if (!runtime_symbol_range(elf, "luaV_execute", &b->loops[0])) {
		if (!runtime_symbol(elf, "lua_callk", &at, NULL) &&
		    !runtime_symbol(elf, "lua_call", &at, NULL))
			return -ENOENT;
		r = runtime_functions_init(elf, &s.functions);
		if (r < 0)
			return r;
		reach(&s, at, 0);
		r = find_largest(&s, &b->loops[0]) ? 0 : -ENOENT;
		runtime_functions_deinit(&s.functions);
		if (r < 0)
			return r;
	}
	b->n_loops = runtime_find_parts(elf, b->loops, LUA_MAX_RANGES);
	return 0;
}

int lua_learn(struct elf_file *elf, struct lua_learned *ret, struct diag *reterr_diag)
{
	struct lua_learned l = {};
	int r;

	if (!find_version(elf, &l))
		return diag_set(reterr_diag, -ENOTSUP, "its read-only data has no version of Lua");
	if (lua_offsets(&l) < 0)
		return diag_set(reterr_diag, -ENOTSUP, "Lua %u.%u: culprit has no offsets for it",
				l.version >> 8, l.version & 0xff);
	r = find_loop(elf, &l.bpf);
	if (r < 0)
		return diag_set(reterr_diag, r == -ENOENT ? -ENOTSUP : r,
				"Lua %u.%u.%u: luaV_execute is not found", l.version >> 8,
				l.version & 0xff, l.release);
	*ret = l;
	return 0;
}
