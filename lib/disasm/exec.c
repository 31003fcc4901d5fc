/* SPDX-License-Identifier: Apache-2.0 */
#include "disasm/exec.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "disasm/exec_arch.h"

/* ---- values ---- */

struct exec_value exec_constant(u64 k)
{
	return (struct exec_value){.known = true, .constant = k};
}

static struct exec_value unknown_value(void)
{
	return (struct exec_value){};
}

static bool same_value(const struct exec_value *a, const struct exec_value *b)
{
	bool same = a->known == b->known && a->n == b->n && a->constant == b->constant;

	for (u32 i = 0; same && i < a->n; i++)
		same = a->terms[i].symbol == b->terms[i].symbol &&
		       a->terms[i].factor == b->terms[i].factor;
	return same;
}

static bool same_symbol(const struct exec_symbol *a, const struct exec_symbol *b)
{
	return a->kind == b->kind && a->size == b->size && same_value(&a->at, &b->at);
}

struct exec_value exec_symbol(struct exec *x, enum exec_symbol_kind kind, u8 size,
			      const struct exec_value *at)
{
	struct exec_symbol s = {.kind = (u8)kind, .size = size};
	u32 i;

	if (at)
		s.at = *at;
	for (i = 0; i < x->n_symbols; i++)
		if (kind != EXEC_RESULT && same_symbol(&x->symbols[i], &s))
			break;
	if (i == EXEC_MAX_SYMBOLS)
		return unknown_value();
	if (i == x->n_symbols)
		memcpy(&x->symbols[x->n_symbols++], &s, sizeof(s));
	return (struct exec_value){.known = true, .n = 1, .terms = {{i, 1}}};
}

struct exec_value exec_scale(const struct exec_value *a, s64 factor)
{
	struct exec_value v = *a;

	if (!v.known)
		return unknown_value();
	if (!factor)
		return exec_constant(0);
	v.constant *= (u64)factor;
	for (u8 i = 0; i < v.n; i++)
		v.terms[i].factor = (s64)((u64)v.terms[i].factor * (u64)factor);
	return v;
}

struct exec_value exec_add(const struct exec_value *a, const struct exec_value *b)
{
	struct exec_value v = *a;

	if (!a->known || !b->known)
		return unknown_value();
	v.constant += b->constant;
	for (u8 i = 0; i < b->n; i++) {
		u8 k = 0;

		while (k < v.n && v.terms[k].symbol != b->terms[i].symbol)
			k++;
		if (k == EXEC_MAX_TERMS)
			return unknown_value();
		if (k == v.n)
			v.terms[v.n++] = (struct exec_term){.symbol = b->terms[i].symbol};
		v.terms[k].factor += b->terms[i].factor;
		if (!v.terms[k].factor) {
			v.terms[k] = v.terms[--v.n];
			v.terms[v.n] = (struct exec_term){};
		}
	}
	return v;
}

struct exec_value exec_load(struct exec *x, const struct exec_program *p,
			    const struct exec_value *at, u8 size)
{
	u64 word;

	if (!at->known)
		return unknown_value();
	if (!at->n && size == 8 && p->constant && p->constant(p->arg, at->constant, &word))
		return exec_constant(word);
	return exec_symbol(x, EXEC_LOAD, size, at);
}

bool exec_is_load(const struct exec *x, const struct exec_value *value, u8 size,
		  struct exec_value *ret_at)
{
	const struct exec_symbol *s;

	if (!value->known || value->n != 1 || value->constant || value->terms[0].factor != 1)
		return false;
	s = &x->symbols[value->terms[0].symbol];
	if (s->kind != EXEC_LOAD || s->size != size)
		return false;
	*ret_at = s->at;
	return true;
}

bool exec_is_constant(const struct exec_value *value, u64 *ret)
{
	if (!value->known || value->n)
		return false;
	*ret = value->constant;
	return true;
}

s64 exec_factor(const struct exec *x, const struct exec_value *value, enum exec_symbol_kind kind,
		u32 *ret_symbol)
{
	for (u8 i = 0; value->known && i < value->n; i++) {
		if (x->symbols[value->terms[i].symbol].kind != kind)
			continue;
		if (ret_symbol)
			*ret_symbol = value->terms[i].symbol;
		return value->terms[i].factor;
	}
	return 0;
}

/* ---- paths ---- */

struct path {
	u64 svma;
	u32 n_insns;
	struct exec state;
};

struct run {
	const struct exec_program *p;
	const struct exec_machine *machine;
	bool arm64;
	struct path *paths; /* owned; in the order in which they began */
	u32 n, n_run;
	bool stop;
};

static void queue_path(struct run *r, const struct exec *x, u64 svma, u32 n_insns)
{
	if (r->n == EXEC_MAX_PATHS)
		return;
	r->paths[r->n] = (struct path){.svma = svma, .n_insns = n_insns};
	memcpy(&r->paths[r->n++].state, x, sizeof(*x));
}

static void tell_event(struct run *r, const struct exec *x, enum exec_event event,
		       const struct exec_value *value)
{
	if (r->p->event(r->p->arg, x, event, value))
		r->stop = true;
}

/* Runs one instruction. False: the path ends with it. */
static bool run_one(struct run *r, struct path *at)
{
	struct exec_insn insn = {};
	struct exec *x = &at->state;
	struct buf code;

	if (at->n_insns++ == EXEC_MAX_INSNS || !r->p->code(r->p->arg, at->svma, 16, &code))
		return false;
	if (!(r->arm64 ? exec_arm64_one(r->p, x, code, at->svma, &insn)
		       : exec_x86_one(r->machine, r->p, x, code, at->svma, &insn)))
		return false;
	at->svma += insn.length;
	switch (insn.flow) {
	case EXEC_NEXT:
		return true;
	case EXEC_BRANCH:
		queue_path(r, x, insn.target, at->n_insns);
		return true;
	case EXEC_JUMP:
		tell_event(r, x, EXEC_CALLS, &x->regs[r->machine->first_arg]);
		at->svma = insn.target;
		return insn.target != ~0ULL;
	case EXEC_CALL: {
		struct exec_value arg = x->regs[r->machine->first_arg];

		tell_event(r, x, EXEC_CALLS, &arg);
		for (u32 i = 0; i < EXEC_N_REGS; i++)
			if (r->machine->clobbered >> i & 1)
				x->regs[i] = unknown_value();
		x->regs[r->machine->result] = exec_symbol(x, EXEC_RESULT, 8, &arg);
		return true;
	}
	case EXEC_RETURN:
		tell_event(r, x, EXEC_RETURNS, &x->regs[r->machine->result]);
		return false;
	default:
		return false;
	}
}

int exec_run(const struct exec_program *p, u16 e_machine, u64 svma)
{
	/* x0 holds the first argument and the result; a call may overwrite x0…x18 and x30. */
	static const struct exec_machine arm64 = {.clobbered = 0x4007ffff};
	struct run r = {.p = p, .machine = &arm64, .arm64 = e_machine == EM_AARCH64};
	struct exec_machine *x86 = NULL;
	struct exec x = {};
	struct path at;
	int e;

	if (e_machine != EM_X86_64 && e_machine != EM_AARCH64)
		return -ENOTSUP;
	r.paths = calloc(EXEC_MAX_PATHS, sizeof(*r.paths));
	if (!r.paths)
		return -ENOMEM;
	if (!r.arm64) {
		e = exec_x86_create(&x86);
		if (e < 0) {
			free(r.paths);
			return e;
		}
		r.machine = x86;
	}
	x.regs[r.machine->first_arg] = exec_symbol(&x, EXEC_ARG, 0, NULL);
	queue_path(&r, &x, svma, 0);
	while (r.n_run < r.n && !r.stop) {
		memcpy(&at, &r.paths[r.n_run++], sizeof(at));
		while (!r.stop && run_one(&r, &at))
			;
	}
	free(r.paths);
	if (x86)
		exec_x86_destroy(x86);
	return 0;
}
