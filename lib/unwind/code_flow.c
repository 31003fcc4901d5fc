/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control-flow graph of one function:
 *
 *	entry ──▶ node ──▶ node ──▶ …		node: an instruction and the state before it
 *	    │
 *	    ├─▶ target of a jump	sure
 *	    └─▶ after a call		weak: the call may not return
 *
 * 1. Sure edges are followed first, then weak ones, lowest address first. 2. If a weak edge brings
 *    another state than a sure edge, the call does not return. The weak edge is then blocked, and
 *    the walk starts again (at most MAX_RESTARTS times). 3. States of the remaining code are
 *    guessed: blocks that only a jump table leads to get the state of the table's jump. A guess
 *    never changes a state that is sure.
 *
 * CODE_MAX_FUNC, the size of a function, and MAX_STEPS bound the walk.
 */
#include "unwind/code_flow.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RESTARTS 24
#define MAX_STEPS (1u << 19)
#define RED_ZONE 128
#define MAX_FRAME (1 << 28)

enum value {
	VALUE_ENTRY, /* the value at the function's entry */
	VALUE_FRAME, /* CFA - state.fp; only the frame pointer has this value */
	VALUE_LOST,
};

struct state {
	s32 sp;	     /* cfa - sp */
	s32 fp;	     /* cfa - fp if the frame pointer is VALUE_FRAME, else 0 */
	s32 fp_slot; /* the caller's frame pointer is saved at CFA + slot; 0: it is not */
	s32 lr_slot;
	u8 sp_known;
	u8 fp_is; /* enum value */
	u8 lr_is; /* enum value */
	u8 pad;
};

enum node_flags {
	NODE_DECODED = 1,
	NODE_BAD = 2, /* there is no instruction */
	NODE_REACHED = 4,
	NODE_WEAK = 8, /* reached only by weak edges so far */
	NODE_QUEUED = 16,
	NODE_GUESS = 32,
	NODE_BLOCKED = 64,     /* no weak edge or guess may lead here */
	NODE_AFTER_CALL = 128, /* reached from the call before it */
};

struct node {
	struct disasm_insn insn;
	struct state in;
	u32 flags;
};

struct flow {
	const struct code_func *f;
	struct disasm *d;
	struct buf bytes[2];
	bool x86;
	u32 n; /* number of offsets: those of part[0], then those of part[1] */
	u32 n_first;
	u32 *at;    /* owned; node index + 1 by offset, or 0 */
	u64 *later; /* owned; one bit per offset whose weak edge waits for the sure edges */
	vec(struct node) nodes;
	vec(u32) queue; /* offsets */
	u32 steps;
	bool guessing;
	bool restart;
	bool runs_into_data;
	bool moves_sp; /* sp moves by an unknown amount: compilers then use the frame pointer */
	/* The state at indirect jumps through tables, if all agree. */
	struct state table;
	bool have_table, tables_differ;
	/* The state at calls relative to the frame pointer, if all agree. */
	struct state frame;
	bool have_frame, frames_differ;
};

static const struct state *entry_state(bool x86)
{
	static const struct state states[2] = {{.sp = 0, .sp_known = 1}, {.sp = 8, .sp_known = 1}};

	return &states[x86];
}

static u64 pc_of(const struct flow *w, u32 off)
{
	return off < w->n_first ? w->f->part[0].start + off
				: w->f->part[1].start + (off - w->n_first);
}

static bool offset_of(const struct flow *w, u64 pc, u32 *ret)
{
	for (u32 p = 0; p < 2; p++) {
		u64 at = pc - w->f->part[p].start;

		if (pc >= w->f->part[p].start && at < buf_left(&w->bytes[p])) {
			*ret = (u32)at + (p ? w->n_first : 0);
			return true;
		}
	}
	return false;
}

/* ---- states ---- */

/* Computes base + off relative to the CFA. False: the base is unknown. */
static bool address_of(const struct state *s, u8 base, s32 off, s32 *ret)
{
	s64 at;

	if (base == DISASM_SP ? !s->sp_known : s->fp_is != VALUE_FRAME)
		return false;
	at = (s64)off - (base == DISASM_SP ? s->sp : s->fp);
	if (at < -MAX_FRAME || at > MAX_FRAME)
		return false;
	*ret = (s32)at;
	return true;
}

static void set_sp(struct state *s, const struct disasm_effect *e)
{
	s32 at;

	s->sp_known = e->op == DISASM_SET && address_of(s, e->base, e->off, &at);
	s->sp = s->sp_known ? -at : 0;
}

static void set_fp(struct state *s, const struct disasm_effect *e)
{
	s32 at;
	bool known = e->op == DISASM_SET && address_of(s, e->base, e->off, &at);

	s->fp_is = known ? VALUE_FRAME : VALUE_LOST;
	s->fp = known ? -at : 0;
}

static void apply_store(struct state *s, const struct disasm_effect *e)
{
	u8 is = e->reg == DISASM_FP ? s->fp_is : s->lr_is;
	s32 *slot = e->reg == DISASM_FP ? &s->fp_slot : &s->lr_slot, at;

	if (is == VALUE_ENTRY && !*slot && address_of(s, e->base, e->off, &at) && at < 0)
		*slot = at;
}

static void apply_load(struct state *s, const struct disasm_effect *e)
{
	s32 *slot = e->reg == DISASM_FP ? &s->fp_slot : &s->lr_slot, at;
	bool back;

	/* A pop of the frame pointer while sp is unknown reveals sp. */
	if (e->reg == DISASM_FP && e->base == DISASM_SP && !s->sp_known && *slot &&
	    s->fp_is == VALUE_FRAME) {
		s->sp = e->off - *slot;
		s->sp_known = 1;
	}
	back = *slot && address_of(s, e->base, e->off, &at) && at == *slot;
	if (back)
		*slot = 0;
	if (e->reg == DISASM_LR) {
		s->lr_is = back ? VALUE_ENTRY : VALUE_LOST;
	} else {
		s->fp_is = back ? VALUE_ENTRY : VALUE_LOST;
		s->fp = 0;
	}
}

static void apply_insn(const struct flow *w, const struct disasm_insn *insn, struct state *s)
{
	s32 zone = w->x86 ? RED_ZONE : 0;

	for (u32 i = 0; i < insn->n; i++) {
		const struct disasm_effect *e = &insn->effects[i];

		if (e->op == DISASM_STORE)
			apply_store(s, e);
		else if (e->op == DISASM_LOAD)
			apply_load(s, e);
		else if (e->reg == DISASM_SP)
			set_sp(s, e);
		else if (e->reg == DISASM_FP)
			set_fp(s, e);
		else
			s->lr_is = VALUE_LOST;
	}
	if (insn->flow == DISASM_CALL && !w->x86)
		s->lr_is = VALUE_LOST;
	if (!s->sp_known)
		return;
	/* The return address was popped; where it goes next is not tracked. */
	if (w->x86 && s->sp < entry_state(true)->sp)
		s->lr_is = VALUE_LOST;
	/* Slots below sp may be overwritten. */
	if (s->fp_slot && s->fp_slot < -s->sp - zone)
		s->fp_slot = 0;
	if (s->lr_slot && s->lr_slot < -s->sp - zone)
		s->lr_slot = 0;
}

static bool same_state(const struct state *a, const struct state *b)
{
	return a->sp == b->sp && a->fp == b->fp && a->fp_slot == b->fp_slot &&
	       a->lr_slot == b->lr_slot && a->sp_known == b->sp_known && a->fp_is == b->fp_is &&
	       a->lr_is == b->lr_is;
}

/*
 * Returns what holds in both states. The result never says more than `a`, so that joining
 * terminates.
 */
static struct state join_states(const struct state *a, const struct state *b)
{
	struct state s = *a;

	if (!b->sp_known || a->sp != b->sp) {
		s.sp_known = 0;
		s.sp = 0;
	}
	if (a->fp_is != b->fp_is || a->fp != b->fp) {
		s.fp_is = VALUE_LOST;
		s.fp = 0;
	}
	if (a->fp_slot != b->fp_slot)
		s.fp_slot = 0;
	if (a->lr_is != b->lr_is)
		s.lr_is = VALUE_LOST;
	if (a->lr_slot != b->lr_slot)
		s.lr_slot = 0;
	return s;
}

static bool at_entry(const struct flow *w, const struct state *s)
{
	return s->sp_known && s->sp == entry_state(w->x86)->sp && s->fp_is == VALUE_ENTRY &&
	       (w->x86 || s->lr_is == VALUE_ENTRY);
}

static bool is_frame(const struct state *s)
{
	return s->fp_is == VALUE_FRAME && s->fp == 16 && s->fp_slot == -16;
}

/* ---- rules ---- */

static bool return_address(const struct flow *w, const struct state *s, struct unwind_rule *r)
{
	r->ra_op = UNWIND_RA_CFA;
	if (w->x86) {
		r->ra_off = -8;
		return s->lr_is == VALUE_ENTRY;
	}
	if (s->lr_slot) {
		r->ra_off = (s16)s->lr_slot;
		return s->lr_slot >= INT16_MIN;
	}
	r->ra_op = UNWIND_RA_REG;
	r->ra_off = 30;
	return s->lr_is == VALUE_ENTRY;
}

static struct unwind_rule rule_of(const struct flow *w, const struct state *s)
{
	static const struct unwind_rule none = {.cfa_op = UNWIND_CFA_NONE};
	struct unwind_rule r = {.cfa_op = UNWIND_CFA_REG};
	bool by_fp = s->fp_is == VALUE_FRAME &&
		     (!s->sp_known || (w->x86 ? is_frame(s) : w->moves_sp && s->fp_slot));

	if (!by_fp && (!s->sp_known || s->sp < entry_state(w->x86)->sp))
		return none;
	r.cfa_reg = w->x86 ? (by_fp ? 6 : 7) : (by_fp ? 29 : 31);
	r.cfa_off = by_fp ? s->fp : s->sp;
	if (!return_address(w, s, &r))
		return none;
	if (s->fp_slot) {
		if (s->fp_slot < INT16_MIN)
			return none;
		r.fp_op = UNWIND_FP_CFA;
		r.fp_off = (s16)s->fp_slot;
	} else if (s->fp_is != VALUE_ENTRY) {
		return none;
	}
	return r;
}

/* ---- the graph ---- */

static struct node *node_at(struct flow *w, u32 off)
{
	u32 p = off >= w->n_first, i = w->at[off];
	struct buf code = w->bytes[p];
	struct node n = {};

	if (i)
		return &w->nodes.data[i - 1];
	(void)buf_skip(&code, off - (p ? w->n_first : 0));
	n.flags = disasm_one(w->d, code, pc_of(w, off), &n.insn) ? NODE_DECODED : NODE_BAD;
	if (vec_push(&w->nodes, n) < 0)
		return NULL;
	w->at[off] = (u32)w->nodes.n;
	return &w->nodes.data[w->nodes.n - 1];
}

static int enqueue_node(struct flow *w, struct node *n, u32 off)
{
	if (n->flags & NODE_QUEUED)
		return 0;
	n->flags |= NODE_QUEUED;
	if (n->flags & NODE_WEAK) {
		w->later[off / 64] |= 1ULL << off % 64;
		return 0;
	}
	return vec_push(&w->queue, off);
}

/* Joins a state into the state of an instruction that was reached before. */
static int meet_state(struct flow *w, struct node *n, u32 off, const struct state *s, bool weak)
{
	struct state both;

	if (same_state(&n->in, s)) {
		if (!weak)
			n->flags &= ~(u32)NODE_WEAK;
		return 0;
	}
	if (w->guessing && !(n->flags & NODE_GUESS))
		return 0;
	if (weak && !(n->flags & NODE_WEAK)) {
		n->flags |= NODE_BLOCKED;
		return 0;
	}
	if (!weak && n->flags & NODE_WEAK && !w->guessing) {
		n->flags |= NODE_BLOCKED;
		w->restart = true;
		return 0;
	}
	both = join_states(&n->in, s);
	if (same_state(&both, &n->in))
		return 0;
	n->in = both;
	return enqueue_node(w, n, off);
}

static int add_edge(struct flow *w, u64 pc, const struct state *s, bool weak)
{
	struct node *n;
	u32 off;

	if (!offset_of(w, pc, &off))
		return 0;
	n = node_at(w, off);
	if (!n)
		return -ENOMEM;
	if (n->flags & NODE_BAD) {
		w->runs_into_data |= !w->guessing && !weak;
		return 0;
	}
	if (weak && n->flags & NODE_BLOCKED)
		return 0;
	/* If the end of the function is unknown, a call before padding may be its last
	 * instruction. */
	if (weak && n->insn.padding && !w->f->bounds)
		return 0;
	if (n->flags & NODE_REACHED)
		return meet_state(w, n, off, s, weak);
	n->flags |= NODE_REACHED | (weak ? NODE_WEAK | NODE_AFTER_CALL : 0) |
		    (w->guessing ? NODE_GUESS : 0);
	n->in = *s;
	return enqueue_node(w, n, off);
}

/* Whether this indirect jump goes through a table. `before` is the preceding instruction. */
static bool is_table_jump(const struct disasm_insn *i, const struct disasm_insn *before)
{
	return i->table ||
	       (before && i->jump_reg != DISASM_NO_REG && before->add_reg == i->jump_reg);
}

static void note_table(struct flow *w, const struct state *s)
{
	if (w->guessing)
		return;
	if (!w->have_table)
		w->table = *s;
	else if (!same_state(&w->table, s))
		w->tables_differ = true;
	w->have_table = true;
}

static void note_frame(struct flow *w, const struct state *s)
{
	struct state frame = {.fp_is = VALUE_FRAME, .lr_is = VALUE_LOST};

	if (w->guessing)
		return;
	frame.fp = s->fp;
	frame.fp_slot = s->fp_slot;
	frame.lr_slot = s->lr_slot;
	if (w->x86)
		frame.lr_is = s->lr_is;
	if (s->fp_is != VALUE_FRAME || !s->fp_slot ||
	    (w->have_frame && !same_state(&frame, &w->frame)))
		w->frames_differ = true;
	w->frame = frame;
	w->have_frame = true;
}

/*
 * Follows the edges of an instruction. `before` is the instruction executed just before it, or
 * NULL.
 */
static int step_insn(struct flow *w, u32 off, u32 before)
{
	struct node *n = node_at(w, off);
	struct disasm_insn insn = n->insn;
	struct state s = n->in;
	u64 pc = pc_of(w, off), next = pc + insn.length;
	int r = 0;

	apply_insn(w, &insn, &s);
	switch (insn.flow) {
	case DISASM_RETURN:
	case DISASM_TRAP:
		return 0;
	case DISASM_CALL:
		note_frame(w, &s);
		return add_edge(w, next, &s, true);
	case DISASM_INDIRECT:
		if (is_table_jump(&insn, before != ~0u ? &w->nodes.data[before].insn : NULL))
			note_table(w, &s);
		return 0;
	case DISASM_BRANCH:
		r = add_edge(w, insn.target, &s, false);
		return r < 0 ? r : add_edge(w, next, &s, false);
	case DISASM_JUMP:
		return add_edge(w, insn.target, &s, false);
	default:
		return add_edge(w, next, &s, false);
	}
}

/* Removes the lowest offset from `later` and returns it; ~0 if there is none. */
static u32 take_later(struct flow *w)
{
	for (u32 i = 0; i < (w->n + 63) / 64; i++) {
		if (!w->later[i])
			continue;
		w->steps += i / 16;
		i = i * 64 + (u32)__builtin_ctzll(w->later[i]);
		w->later[i / 64] &= ~(1ULL << i % 64);
		return i;
	}
	return ~0u;
}

/* Follows all queued edges. -E2BIG: too many steps; -ENOMEM. */
static int drain_queue(struct flow *w)
{
	u32 before = ~0u, last_end = ~0u;

	while (!w->restart) {
		struct node *n;
		u32 off = w->queue.n ? w->queue.data[--w->queue.n] : take_later(w);
		int r;

		if (off == ~0u)
			return 0;
		if (w->steps++ >= MAX_STEPS)
			return -E2BIG;
		n = node_at(w, off);
		n->flags &= ~(u32)NODE_QUEUED;
		r = step_insn(w, off, last_end == off ? before : ~0u);
		if (r < 0)
			return r;
		n = node_at(w, off);
		before = w->at[off] - 1;
		last_end = off + n->insn.length;
	}
	return 0;
}

static void reset_flow(struct flow *w)
{
	vec_foreach (&w->nodes, n)
		n->flags &= NODE_DECODED | NODE_BAD | NODE_BLOCKED;
	memset(w->later, 0, (w->n + 63) / 64 * 8);
	vec_clear(&w->queue);
	w->restart = w->guessing = w->runs_into_data = false;
	w->have_table = w->tables_differ = w->have_frame = w->frames_differ = false;
}

/*
 * Handles a return that finds a frame on the stack: the function ended with a call that does not
 * return, and the code after that call belongs to another function, whose start is in no list.
 */
static void leave_other_function(struct flow *w)
{
	struct node *last = NULL;

	for (u32 off = 0; off < w->n_first; off++) {
		struct node *n = w->at[off] ? &w->nodes.data[w->at[off] - 1] : NULL;

		if (!n || !(n->flags & NODE_REACHED))
			continue;
		if (n->flags & NODE_AFTER_CALL)
			last = n;
		if (n->insn.flow == DISASM_RETURN && last && n->in.sp_known &&
		    n->in.sp > entry_state(w->x86)->sp) {
			last->flags |= NODE_BLOCKED;
			w->restart = true;
			return;
		}
	}
}

static int follow_flow(struct flow *w)
{
	for (u32 i = 0; i < MAX_RESTARTS; i++) {
		int r;

		reset_flow(w);
		r = add_edge(w, w->f->part[0].start, entry_state(w->x86), false);
		if (r == 0)
			r = drain_queue(w);
		if (r == 0 && !w->restart && !w->f->bounds)
			leave_other_function(w);
		if (r < 0 || !w->restart)
			return r;
	}
	return -E2BIG;
}

/* ---- code that no edge leads to ---- */

static bool is_reached(const struct flow *w, u32 off)
{
	return w->at[off] && w->nodes.data[w->at[off] - 1].flags & NODE_REACHED;
}

/* Returns the end of the last instruction of part[0] that was reached. */
static u32 reached_end(const struct flow *w)
{
	for (u32 off = w->n_first; off > 0; off--)
		if (is_reached(w, off - 1))
			return MIN(w->n_first,
				   off - 1 + w->nodes.data[w->at[off - 1] - 1].insn.length);
	return 0;
}

static bool guess_of(const struct flow *w, struct state *ret)
{
	*ret = w->have_table ? w->table : w->frame;
	return w->have_table ? !w->tables_differ : w->have_frame && !w->frames_differ;
}

/*
 * Guesses the end of a function whose end is unknown. Only int3 between functions shows it: lld
 * pads with int3, which no function contains. Functions also contain nops, which prove nothing.
 */
static u32 guess_end(struct flow *w)
{
	u32 reached = reached_end(w), off = reached;
	bool ended = true;

	while (off < w->n_first) {
		struct node *n = node_at(w, off);

		if (!n || n->flags & NODE_BAD)
			return reached;
		if (ended && n->insn.padding)
			return n->insn.flow == DISASM_TRAP ? off : reached;
		ended = n->insn.flow != DISASM_NEXT && n->insn.flow != DISASM_BRANCH;
		off += n->insn.length;
	}
	return reached;
}

static int guess_states(struct flow *w)
{
	u32 end = w->f->bounds ? w->n : guess_end(w), off = 0;
	struct state s;

	if (!guess_of(w, &s))
		return 0;
	w->guessing = true;
	while (off < end) {
		struct node *n = node_at(w, off);
		int r;

		if (!n)
			return -ENOMEM;
		if (n->flags & NODE_BAD) {
			/* Possibly data. It is unknown where code begins again. */
			for (off++; off < end && !is_reached(w, off);)
				off++;
			continue;
		}
		if (!(n->flags & NODE_REACHED) && !n->insn.padding) {
			r = add_edge(w, pc_of(w, off), &s, false);
			if (r == 0)
				r = drain_queue(w);
			if (r < 0)
				return r;
			n = node_at(w, off);
		}
		off += n->insn.length;
	}
	return 0;
}

/* ---- rows ---- */

static int add_row(struct code_rows *ret, size_t from, u64 pc, const struct unwind_rule *rule)
{
	if (ret->list.n > from &&
	    !memcmp(&ret->list.data[ret->list.n - 1].rule, rule, sizeof(*rule)))
		return 0;
	return vec_push(&ret->list, (struct code_row){.pc = pc, .rule = *rule});
}

/* Adds a row without information for the bytes of a part that were cut off. */
static int end_part(const struct flow *w, u32 part, struct code_rows *ret, size_t from)
{
	static const struct unwind_rule none = {.cfa_op = UNWIND_CFA_NONE};

	u64 end = w->f->part[part].start + buf_left(&w->bytes[part]);

	return end < w->f->part[part].end ? add_row(ret, from, end, &none) : 0;
}

static void check_end(const struct flow *w, const struct node *n, struct code_rows *ret)
{
	u32 off;

	if (n->insn.flow == DISASM_RETURN) {
		ret->returns = true;
		ret->sane &= at_entry(w, &n->in) ||
			     (!n->in.sp_known && w->have_frame && !w->frames_differ);
	} else if (n->insn.flow == DISASM_JUMP && !offset_of(w, n->insn.target, &off)) {
		ret->returns = true;
	} else if (n->insn.flow == DISASM_INDIRECT && at_entry(w, &n->in)) {
		ret->returns = true;
	}
}

static int make_rows(struct flow *w, struct code_rows *ret)
{
	static const struct unwind_rule none = {.cfa_op = UNWIND_CFA_NONE};
	size_t from = 0;
	u32 end = 0;
	int r = 0;

	ret->sane = !w->runs_into_data;
	ret->returns = false;
	ret->n_first = 0;
	vec_foreach (&w->nodes, n)
		w->moves_sp |=
			n->flags & NODE_REACHED && !n->in.sp_known && n->in.fp_is == VALUE_FRAME;
	for (u32 off = 0; r == 0 && off < w->n; off++) {
		const struct node *n;
		struct unwind_rule rule;

		if (off == w->n_first) {
			r = end_part(w, 0, ret, from);
			from = ret->n_first = ret->list.n;
			end = off;
		}
		if (!is_reached(w, off)) {
			if (off == end)
				r = add_row(ret, from, pc_of(w, off), &none);
			continue;
		}
		n = &w->nodes.data[w->at[off] - 1];
		rule = rule_of(w, &n->in);
		r = add_row(ret, from, pc_of(w, off), &rule);
		if (!(n->flags & NODE_GUESS))
			check_end(w, n, ret);
		end = off + n->insn.length;
	}
	if (r == 0)
		r = end_part(w, w->n > w->n_first, ret, from);
	if (w->n == w->n_first)
		ret->n_first = ret->list.n;
	ret->reached_end = w->f->part[0].start + reached_end(w);
	return r;
}

static ssize_t read_part(struct elf_file *elf, const struct code_span *p, u8 **ret)
{
	u64 n = MIN(p->end - p->start, (u64)CODE_MAX_FUNC);
	ssize_t got;

	if (p->end <= p->start)
		return 0;
	*ret = malloc(n);
	if (!*ret)
		return -ENOMEM;
	got = elf_file_copy(elf, p->start, n, *ret);
	return got == -ENOMEM ? got : MAX(got, (ssize_t)0);
}

int code_flow(struct elf_file *elf, struct disasm *d, const struct code_func *f,
	      struct code_rows *ret)
{
	_cleanup_free_ u8 *hot = NULL, *cold = NULL;
	_cleanup_free_ u32 *at = NULL;
	_cleanup_free_ u64 *later = NULL;
	struct flow w = {.f = f, .d = d, .x86 = elf->machine == EM_X86_64};
	ssize_t n_hot = read_part(elf, &f->part[0], &hot);
	ssize_t n_cold = n_hot > 0 ? read_part(elf, &f->part[1], &cold) : 0;
	int r;

	vec_clear(&ret->list);
	if (n_hot <= 0 || n_cold < 0)
		return n_hot == -ENOMEM || n_cold < 0 ? -ENOMEM : -ENOENT;
	w.bytes[0] = buf_of(hot, (size_t)n_hot);
	if (cold)
		w.bytes[1] = buf_of(cold, (size_t)n_cold);
	w.n_first = (u32)n_hot;
	w.n = (u32)(n_hot + n_cold);
	w.at = at = calloc(w.n, sizeof(*at));
	w.later = later = calloc((w.n + 63) / 64, sizeof(*later));
	r = at && later ? follow_flow(&w) : -ENOMEM;
	if (r == 0)
		r = guess_states(&w);
	if (r == 0)
		r = make_rows(&w, ret);
	vec_deinit(&w.nodes);
	vec_deinit(&w.queue);
	if (r == -E2BIG) { /* too complex: the function gets no rows */
		vec_clear(&ret->list);
		ret->n_first = 0;
		ret->sane = false;
		r = 0;
	}
	return r;
}
