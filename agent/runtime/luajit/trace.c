/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that a trace runs. A trace compiles a path through several functions. Its snapshots
 * say, for places in the machine code, which frames the Lua stack would have there (lj_snap.c):
 *
 *	snapshot	{map: u32, …, machine code: u16 at 6, …, entries: u8 at 10, …}, 12 bytes
 *	map		entries {slot: 8 bits, flags, reference of a value: 16 bits}; then the
 *			current pc << 8, 8 bytes
 *
 * An entry with the flag of a frame refers to a constant: what the frame has at base - 8. The
 * function of a pc is one of those that the trace's constants name, and whose bytecode has this pc.
 *
 * Before 2021 snapshots had no offset in the machine code. Then only the function that the trace
 * starts in is known.
 */
#include "agent/runtime/luajit/luajit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define SNAPSHOT_BYTES 12
#define MAX_SNAPSHOTS 4096
#define MAX_ENTRIES 255
#define MAX_CONSTANTS 8192
#define MAX_PROTOS 64
#define ENTRY_FRAME 0x10000
/* lj_ir.h */
#define REF_BIAS 0x8000u
#define TYPE_MASK 0x1f
#define TYPE_PROTO 7
#define TYPE_FUNCTION 8
#define TYPE_POINTER 9

int luajit_read_trace(const struct runtime_memory *m, u64 at, u64 where, struct luajit_trace *ret)
{
	u8 bytes[LUAJIT_TRACE_BYTES];
	struct luajit_trace t = {.at = at};
	u16 n_snapshots;

	if (runtime_read(m, at, bytes, sizeof(bytes)) < 0)
		return -EFAULT;
	memcpy(&n_snapshots, bytes + 10, 2);
	memcpy(&t.code, bytes + 32, 8);
	memcpy(&t.first_constant, bytes + 40, 4);
	memcpy(&t.n_map, bytes + 44, 4);
	memcpy(&t.snapshots, bytes + 48, 8);
	memcpy(&t.map, bytes + 56, 8);
	memcpy(&t.proto, bytes + LUAJIT_TRACE_PROTO, 8);
	memcpy(&t.pc, bytes + LUAJIT_TRACE_PC, 8);
	memcpy(&t.mcode_bytes, bytes + LUAJIT_TRACE_SIZE, 4);
	memcpy(&t.mcode, bytes + LUAJIT_TRACE_MCODE, 8);
	memcpy(&t.number, bytes + LUAJIT_TRACE_NUMBER, 2);
	memcpy(&t.root, bytes + LUAJIT_TRACE_NUMBER + 4, 2);
	t.n_snapshots = n_snapshots;
	if (where >> LUAJIT_COOKIE_SHIFT !=
	    luajit_cookie(t.pc, t.mcode, t.number) >> LUAJIT_COOKIE_SHIFT)
		return -ESTALE;
	*ret = t;
	return 0;
}

/* ---- functions by pc ---- */

struct protos {
	u64 at[MAX_PROTOS];
	u32 n;
};

static void add_proto(struct protos *p, u64 at)
{
	for (u32 i = 0; i < p->n; i++)
		if (p->at[i] == at)
			return;
	if (p->n < MAX_PROTOS)
		p->at[p->n++] = at;
}

/* Collects the functions that the constants of the trace refer to. */
static int find_protos(const struct runtime_memory *m, const struct luajit_trace *t,
		       struct protos *ret)
{
	_cleanup_free_ u64 *words = NULL;
	u32 n = REF_BIAS - t->first_constant;
	bool failed = false;

	add_proto(ret, t->proto);
	if (t->first_constant > REF_BIAS || n > MAX_CONSTANTS)
		return 0;
	words = malloc(8 * (size_t)n + 8);
	if (!words)
		return -ENOMEM;
	if (n && runtime_read(m, t->code + 8ULL * t->first_constant, words, 8 * (size_t)n) < 0)
		return -EFAULT;
	for (u32 i = 0; i + 1 < n; i++) {
		switch (words[i] >> 32 & TYPE_MASK) {
		case TYPE_PROTO:
			add_proto(ret, words[i + 1]);
			break;
		case TYPE_FUNCTION:
			add_proto(ret, runtime_u64(m, words[i + 1] + LUAJIT_FUNCTION_PC, &failed) -
					       LUAJIT_PROTO_BYTES);
			break;
		case TYPE_POINTER:
			add_proto(ret, words[i + 1] - LUAJIT_PROTO_BYTES);
			break;
		}
	}
	return 0;
}

/* Finds the function whose bytecode has the pc. */
static bool find_place(const struct runtime_memory *m, const struct protos *protos, u64 pc,
		       struct luajit_place *ret)
{
	for (u32 i = 0; i < protos->n; i++) {
		u64 code = protos->at[i] + LUAJIT_PROTO_BYTES;

		if (pc < code || luajit_read_proto(m, protos->at[i], &ret->proto) < 0 ||
		    pc - code >= 4ULL * ret->proto.n_code)
			continue;
		ret->n = (u32)((pc - code) / 4);
		return true;
	}
	return false;
}

/* ---- snapshots ---- */

/* Finds the snapshot for an offset in the machine code. */
static int find_snapshot(const struct runtime_memory *m, const struct luajit_trace *t, u32 offset,
			 u32 *ret_map, u32 *ret_n)
{
	_cleanup_free_ u8 *bytes = NULL;
	u32 best = 0;
	u16 at = 0;

	if (!t->n_snapshots || t->n_snapshots > MAX_SNAPSHOTS)
		return -ENOENT;
	bytes = malloc((size_t)t->n_snapshots * SNAPSHOT_BYTES);
	if (!bytes)
		return -ENOMEM;
	if (runtime_read(m, t->snapshots, bytes, (size_t)t->n_snapshots * SNAPSHOT_BYTES) < 0)
		return -EFAULT;
	for (u32 i = 0; i < t->n_snapshots; i++) {
		memcpy(&at, bytes + (size_t)i * SNAPSHOT_BYTES + 6, 2);
		/* Older releases have the number of slots here, which is not 0. */
		if (!i && at)
			return -ENOENT;
		if (at <= offset)
			best = i;
	}
	memcpy(ret_map, bytes + (size_t)best * SNAPSHOT_BYTES, 4);
	*ret_n = bytes[(size_t)best * SNAPSHOT_BYTES + 10];
	return (u64)*ret_map + *ret_n + 2 <= t->n_map ? 0 : -ENOENT;
}

/* The constant that an entry of the map refers to. */
static bool entry_value(const struct runtime_memory *m, const struct luajit_trace *t, u32 entry,
			u64 *ret)
{
	u32 ref = entry & 0xffff;

	return ref >= t->first_constant && ref + 1 < REF_BIAS &&
	       runtime_read(m, t->code + 8ULL * (ref + 1), ret, sizeof(*ret)) == 0;
}

/* The value that the map has for a slot. */
static bool slot_value(const struct runtime_memory *m, const struct luajit_trace *t, const u32 *map,
		       u32 n, u32 slot, u64 *ret)
{
	for (u32 i = 0; i < n; i++)
		if (map[i] >> 24 == slot)
			return entry_value(m, t, map[i], ret);
	return false;
}

/*
 * Adds the functions of a snapshot's frames, from the innermost one on. A pc of a call is the one
 * after the call.
 */
static u32 add_frames(const struct runtime_memory *m, const struct luajit_trace *t,
		      const struct protos *protos, const u32 *map, u32 n, struct luajit_place *ret,
		      u32 max)
{
	u32 n_ret = 0;
	u64 pc, link;

	memcpy(&pc, map + n, sizeof(pc));
	pc = (pc >> 8) + 4;
	for (u32 i = n; n_ret < max; i--) {
		/* The current frame is the last one of the map, and the outermost has no entry. */
		while (i && (!(map[i - 1] & ENTRY_FRAME) || map[i - 1] >> 24 < 2))
			i--;
		if (i && entry_value(m, t, map[i - 1], &link) && (link & 7) == 3)
			continue; /* the second frame of a function with variable arguments */
		if (pc && find_place(m, protos, pc - 4, &ret[n_ret]))
			ret[n_ret++].n++;
		if (!i || !entry_value(m, t, map[i - 1], &link))
			break;
		pc = link;
		/* A continuation has the pc below; a function of the VM has none. */
		if (link & 3 &&
		    ((link & 7) != 2 || !slot_value(m, t, map, n, (map[i - 1] >> 24) - 2, &pc)))
			pc = 0;
	}
	return n_ret;
}

int luajit_trace_places(const struct runtime_memory *m, const struct luajit_trace *t, u32 offset,
			struct luajit_place *ret, u32 max)
{
	u32 map[MAX_ENTRIES + 2], first, n;
	struct protos protos = {};
	int r = find_protos(m, t, &protos);

	if (r < 0)
		return r;
	r = find_snapshot(m, t, offset, &first, &n);
	if (r == 0 && runtime_read(m, t->map + 4ULL * first, map, 4 * (size_t)(n + 2)) < 0)
		r = -EFAULT;
	if (r == 0)
		r = (int)add_frames(m, t, &protos, map, n, ret, max);
	if (r > 0 || (r < 0 && r != -ENOENT))
		return r;
	r = luajit_read_proto(m, t->proto, &ret->proto);
	if (r < 0)
		return r;
	ret->n = LUAJIT_NO_POSITION;
	return 1;
}
