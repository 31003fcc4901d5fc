/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the layout of the emulator's structs in the data of a running emulator. The relations that
 * the fields must have, by struct:
 *
 *	ranges		three times modules, n ≤ allocated, a pointer into `modules`; an unused
 *			copy has no modules
 *	code header	n functions, whose pointers rise, are in the module's code, and lead to
 *			names of one module
 *	atom		the first two atoms are `false` and `true`
 *	process		heap, its end, …, its size; heap ≤ htop ≤ stop ≤ end; three words {module,
 *			function, arity}; a pointer to {…, this process, …, name}, or 0
 *	ErtsSchedulerData_	type, number, number among the dirty ones, which are known; the word
 *			before them is the current process
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtime/beam/beam.h"
#include "base/cleanup.h"

#define NEAR_RANGES 1024 /* bytes before and after near_ranges that are searched */
#define LEAST_MODULES 8
#define MAX_TRIES 1024 /* places in a bare binary's data that look like the ranges */
#define TRIED_MODULES 4

#define PROCESS_BYTES 1024
#define MAX_PROCESSES 64 /* that are looked at */
#define LEAST_PROCESSES 8
#define LEAST_REGISTERED 2
#define TABLE_BYTES (64u << 10) /* of the table of processes */
#define MAX_TABLE_BYTES 4096	/* of the variable erts_proc */

#define SCHEDULER_BYTES 2048
#define MAX_STACK_WORDS 64 /* that are looked at for frame pointers */

static int read_words(const struct beam_memory *m, u64 avma, u64 *ret, u32 n)
{
	return runtime_read(m->memory, avma, ret, n * sizeof(*ret));
}

/* ---- ranges ---- */

static bool are_ranges(const u64 *words)
{
	u64 modules = words[0], n = words[1], allocated = words[2], mid = words[3];

	return modules && !(modules & 7) && n >= LEAST_MODULES && n <= allocated &&
	       allocated <= BEAM_MAX_RANGES && mid >= modules && !((mid - modules) & 15) &&
	       (mid - modules) / 16 <= n;
}

/* Whether it is a copy that the emulator has not used yet, or is filling. */
static bool are_unused(const u64 *words)
{
	u64 modules = words[0], n = words[1], allocated = words[2];

	return n <= allocated && allocated <= BEAM_MAX_RANGES && !modules == !allocated &&
	       !(modules & 7) && (!words[3] || modules);
}

/* Whether the three copies can be here, of which the emulator uses the one of number `active`. */
static bool are_copies(const struct beam_memory *m, const u64 *words, u32 active)
{
	u64 first[4];

	for (u32 i = 0; i < 3; i++)
		if (!are_ranges(&words[4 * i]) && (i == active || !are_unused(&words[4 * i])))
			return false;
	return read_words(m, words[4 * active], first, 4) == 0 && first[0] < first[1] &&
	       first[1] <= first[2] && first[2] < first[3];
}

/*
 * While the emulator starts, it uses one copy, and soon all three. Then only one place may fit,
 * because what is next to the copies may look like one that was not used yet.
 */
static int find_ranges(const struct beam_memory *m, struct beam_layout *ret)
{
	u64 words[2 * NEAR_RANGES / 8];
	u64 start = m->l->near_ranges - NEAR_RANGES;
	bool failed = false;
	u32 active = runtime_u32(m->memory, m->bias + m->l->code_index, &failed), n = 0, found = 0;

	if (failed || active > 2 || read_words(m, m->bias + start, words, ARRAY_SIZE(words)) < 0)
		return -EAGAIN;
	for (u32 i = 0; i + 12 <= ARRAY_SIZE(words); i++) {
		bool all = true;

		if (!are_copies(m, &words[i], active))
			continue;
		for (u32 k = 0; k < 3; k++)
			all = all && are_ranges(&words[i + 4 * k]);
		if (all) {
			ret->ranges = start + 8ULL * i;
			return 0;
		}
		found = i;
		n++;
	}
	if (n != 1)
		return -EAGAIN;
	ret->ranges = start + 8ULL * found;
	return 0;
}

/*
 * In all that a bare binary can write to. There is no index yet, so all three copies have to be in
 * use, at one place only.
 */
static int find_bare_ranges(const struct beam_memory *m, struct beam_layout *ret)
{
	u64 n = (m->l->data.end - m->l->data.start) / 8, found = 0;
	_cleanup_free_ u64 *words = malloc(8 * n + 8);
	u32 tries = 0;

	if (!words)
		return -ENOMEM;
	if (runtime_read(m->memory, m->bias + m->l->data.start, words, 8 * n) < 0)
		return -EAGAIN;
	for (u64 i = 0; i + 12 <= n; i++) {
		bool all = true;

		for (u32 k = 0; k < 3 && all; k++)
			all = are_ranges(&words[i + 4ULL * k]);
		if (!all)
			continue;
		if (++tries > MAX_TRIES)
			return -ENOTSUP;
		for (u32 k = 0; k < 3 && all; k++)
			all = are_copies(m, &words[i], k);
		if (!all)
			continue;
		if (found)
			return -ENOTSUP;
		found = m->l->data.start + 8 * i;
	}
	ret->ranges = found;
	return found ? 0 : -EAGAIN;
}

/* ---- beam_code_header ---- */

/* Whether the pointers to functions can be at this offset in the header of a module. */
static bool are_functions(const struct beam_memory *m, const struct beam_module *module, u32 off)
{
	u64 n = 0, ends[2], mfa[BEAM_MFA_WORDS], last[BEAM_MFA_WORDS], end;

	if (read_words(m, module->start, &n, 1) < 0 || !n || n > BEAM_MAX_FUNCTIONS ||
	    read_words(m, module->start + off, ends, 2) < 0 ||
	    read_words(m, module->start + off + 8 * (n - 1), &last[0], 1) < 0 ||
	    read_words(m, module->start + off + 8 * n, &end, 1) < 0)
		return false;
	if (ends[0] < module->start + off + 8 * (n + 1) || ends[1] <= ends[0] ||
	    last[0] < ends[0] || end <= last[0] || end > module->end)
		return false;
	return read_words(m, ends[0] + 16, mfa, BEAM_MFA_WORDS) == 0 &&
	       read_words(m, last[0] + 16, last, BEAM_MFA_WORDS) == 0 && beam_is_atom(mfa[0]) &&
	       beam_is_atom(mfa[1]) && beam_is_atom(last[1]) && mfa[0] == last[0];
}

static int find_functions(const struct beam_memory *m, struct beam_layout *ret)
{
	struct beam_module modules[TRIED_MODULES];
	u64 at;
	u32 n;
	int r = beam_modules(m, ret->ranges, &at, &n);

	if (r < 0 || n < TRIED_MODULES || runtime_read(m->memory, at, modules, sizeof(modules)) < 0)
		return -EAGAIN;
	for (u32 off = 80; off < 256; off += 8) {
		bool all = true;

		for (u32 i = 0; i < TRIED_MODULES && all; i++)
			all = are_functions(m, &modules[i], off);
		if (!all)
			continue;
		ret->functions = (u16)off;
		return 0;
	}
	return -ENOTSUP;
}

/* ---- atom ---- */

static int find_atoms(const struct beam_memory *m, struct beam_layout *ret)
{
	char a[BEAM_MAX_ATOM], b[BEAM_MAX_ATOM];

	for (u32 boxed = 0; boxed < 2; boxed++) {
		if (beam_atom(m, boxed, 0, a) < 0 || beam_atom(m, boxed, 1, b) < 0 ||
		    strcmp(a, "false") || strcmp(b, "true"))
			continue;
		ret->boxed_names = boxed;
		return 0;
	}
	return -ENOTSUP;
}

/* ---- process ---- */

struct processes {
	u32 n;
	u64 avma[MAX_PROCESSES];
	u64 words[MAX_PROCESSES][PROCESS_BYTES / 8];
};

/*
 * The table of processes: two pointers, then the number of entries, and a mask for as many, both of
 * 32 bits, or (since OTP 26) of 64.
 */
static u64 find_table(const struct beam_memory *m)
{
	u64 words[MAX_TABLE_BYTES / 8];
	u64 n = MIN(m->l->processes_size, (u64)MAX_TABLE_BYTES) / 8;

	if (read_words(m, m->bias + m->l->processes, words, (u32)n) < 0)
		return 0;
	for (u32 i = 0; i + 4 <= n; i++) {
		bool wide = !(words[i + 2] >> 32);
		u64 max = words[i + 2] & 0xffffffff;
		u64 mask = wide ? words[i + 3] : words[i + 2] >> 32;

		if (words[i] && words[i + 1] && !((words[i] | words[i + 1]) & 7) && max >= 1024 &&
		    mask + 1 >= max && !(mask & (mask + 1)))
			return words[i];
	}
	return 0;
}

static int read_processes(const struct beam_memory *m, struct processes *ret)
{
	_cleanup_free_ u64 *table = malloc(TABLE_BYTES);
	u64 at = find_table(m);

	if (!table)
		return -ENOMEM;
	if (!at || runtime_read(m->memory, at, table, TABLE_BYTES) < 0)
		return -EAGAIN;
	for (u32 i = 0; i < TABLE_BYTES / 8 && ret->n < MAX_PROCESSES; i++) {
		if (!table[i] || table[i] & 7 ||
		    runtime_read(m->memory, table[i], ret->words[ret->n], PROCESS_BYTES) < 0)
			continue;
		/* Not the entry that marks a place in use. */
		if ((ret->words[ret->n][0] & 15) == 3)
			ret->avma[ret->n++] = table[i];
	}
	return ret->n >= LEAST_PROCESSES ? 0 : -EAGAIN;
}

/* A process that changes while it is read may break a relation. */
static bool nearly_all(const struct processes *p, u32 n)
{
	return n + p->n / 8 >= p->n;
}

static bool is_heap(const u64 *w, u32 i)
{
	return w[i] && !(w[i] & 7) && w[i + 1] > w[i] && w[i + 3] < 1ULL << 40 &&
	       w[i + 1] - w[i] == 8 * w[i + 3];
}

static bool is_stack(const u64 *w, u32 i, u32 heap)
{
	return w[i] >= w[heap] && w[i + 1] >= w[i] && w[i + 1] < w[heap + 1] && !(w[i + 1] & 7) &&
	       !(w[i] & 7);
}

static bool is_mfa(const u64 *w, u32 i)
{
	return beam_is_atom(w[i]) && beam_is_atom(w[i + 1]) && w[i + 2] <= 255;
}

static int find_heap(const struct processes *p, struct beam_layout *ret)
{
	for (u32 i = 8; i < 64; i++) {
		u32 n = 0;

		for (u32 k = 0; k < p->n; k++)
			n += is_heap(p->words[k], i);
		if (!nearly_all(p, n))
			continue;
		ret->heap = (u16)(8 * i);
		return 0;
	}
	return -ENOTSUP;
}

static int find_stop(const struct processes *p, struct beam_layout *ret)
{
	for (u32 i = 4; i < 64; i++) {
		u32 n = 0;

		for (u32 k = 0; k < p->n; k++)
			n += is_stack(p->words[k], i, ret->heap / 8);
		if (i == ret->heap / 8u || !nearly_all(p, n))
			continue;
		ret->stop = (u16)(8 * (i + 1));
		return 0;
	}
	return -ENOTSUP;
}

static int find_initial(const struct processes *p, struct beam_layout *ret)
{
	for (u32 i = 8; i + 4 <= PROCESS_BYTES / 8; i++) {
		u32 n = 0;

		for (u32 k = 0; k < p->n; k++)
			n += is_mfa(p->words[k], i);
		if (!nearly_all(p, n))
			continue;
		ret->initial = (u16)(8 * i);
		return 0;
	}
	return -ENOTSUP;
}

static int find_registered(const struct beam_memory *m, const struct processes *p,
			   struct beam_layout *ret)
{
	for (u32 i = 1; i < 64; i++) {
		u32 n = 0, none = 0;

		for (u32 k = 0; k < p->n; k++) {
			u64 reg = p->words[k][i], process, name;

			if (!reg) {
				none++;
				continue;
			}
			if (reg & 7 || read_words(m, reg + BEAM_REG_PROCESS, &process, 1) < 0 ||
			    read_words(m, reg + BEAM_REG_NAME, &name, 1) < 0)
				continue;
			n += process == p->avma[k] && beam_is_atom(name);
		}
		if (n < LEAST_REGISTERED || !nearly_all(p, n + none))
			continue;
		ret->registered = (u16)(8 * i);
		return 0;
	}
	return -EAGAIN;
}

static int find_process(const struct beam_memory *m, struct beam_layout *ret)
{
	_cleanup_free_ struct processes *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = read_processes(m, p);
	if (r == 0)
		r = find_heap(p, ret);
	if (r == 0)
		r = find_stop(p, ret);
	if (r == 0)
		r = find_initial(p, ret);
	if (r == 0)
		r = find_registered(m, p, ret);
	return r;
}

/* ---- ErtsSchedulerData_ ---- */

static int find_scheduler(const struct beam_memory *m, struct beam_layout *ret)
{
	u64 words[3][SCHEDULER_BYTES / 8];
	bool failed = false;

	for (u32 i = 0; i < 3; i++) {
		u64 at = runtime_u64(m->memory, m->bias + m->l->schedulers[i], &failed);

		if (failed || !at || read_words(m, at, words[i], SCHEDULER_BYTES / 8) < 0)
			return -EAGAIN;
	}
	/* {type, number, number of a dirty scheduler} of the first of each type */
	for (u32 k = 1; k + 3 <= SCHEDULER_BYTES / 8; k++) {
		bool all = true;

		for (u32 i = 0; i < 3; i++)
			all = all && (u32)words[i][k] == i && words[i][k + 1] == !i &&
			      words[i][k + 2] == !!i;
		if (!all)
			continue;
		ret->current = (u16)(8 * (k - 1));
		return 0;
	}
	return -ENOTSUP;
}

/* ---- stacks ---- */

static bool has_frame_pointer(const struct beam_memory *m, u64 stop, u64 end)
{
	u64 words[MAX_STACK_WORDS];
	u64 n = MIN((end - stop) / 8, (u64)MAX_STACK_WORDS);

	if (read_words(m, stop, words, (u32)n) < 0)
		return false;
	for (u64 i = 0; i < n; i++)
		if (!(words[i] & 7) && words[i] >= stop && words[i] < end)
			return true;
	return false;
}

int beam_find_stacks(const struct beam_memory *m, const struct beam_layout *layout,
		     u64 *ret_normal_exit, bool *ret_frame_pointers)
{
	_cleanup_free_ struct processes *p = calloc(1, sizeof(*p));
	u64 last[MAX_PROCESSES];
	u32 n = 0, frame_pointers = 0, best = 0;
	int r = p ? read_processes(m, p) : -ENOMEM;

	if (r < 0)
		return r;
	for (u32 i = 0; i < p->n; i++) {
		u64 stop = p->words[i][layout->stop / 8], end = p->words[i][layout->heap / 8 + 1];

		if (stop >= end || stop & 7 || read_words(m, end - 8, &last[n], 1) < 0)
			continue;
		n++;
		frame_pointers += has_frame_pointer(m, stop, end);
	}
	for (u32 i = 0; i < n; i++) {
		u32 same = 0;

		for (u32 k = 0; k < n; k++)
			same += last[k] == last[i];
		if (same > best) {
			best = same;
			*ret_normal_exit = last[i];
		}
	}
	*ret_frame_pointers = frame_pointers > n / 2;
	return nearly_all(p, best) ? 0 : -EAGAIN;
}

int beam_find_layout(const struct beam_memory *m, struct beam_layout *ret)
{
	struct beam_layout found = {};
	int r = m->l->bare ? find_bare_ranges(m, &found) : find_ranges(m, &found);

	if (r == 0)
		r = find_functions(m, &found);
	if (r == 0)
		r = find_atoms(m, &found);
	if (r == 0)
		r = find_process(m, &found);
	if (r == 0 && !m->l->bare)
		r = find_scheduler(m, &found);
	if (r < 0)
		return r;
	if (m->l->bare)
		found.current = m->l->current;
	found.known = true;
	*ret = found;
	return 0;
}
