/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the slice of all goroutines, runtime.allgs. Stripped programs have no symbol of it, but
 * .gopclntab names runtime.allgadd(), which appends to it: of all words that this function loads
 * relative to rip, those of allgs alone are three in a row (pointer, length, capacity). Only
 * x86-64 has this form.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "runtime/go/go.h"
#include "runtime/go/pclntab.h"
#include "runtime/go/switch.h"

#define CODE_MAX 2048
#define LOADS_MAX 64
#define RANGES_MAX 4096

/* The addresses of the words that `mov disp32(%rip), %reg` loads. */
static u32 find_loads(const u8 *code, size_t n, u64 svma, u64 ret[LOADS_MAX])
{
	u32 found = 0;
	s32 disp;

	for (size_t i = 0; i + 7 <= n && found < LOADS_MAX; i++) {
		if ((code[i] & 0xfb) != 0x48 || code[i + 1] != 0x8b || (code[i + 2] & 0xc7) != 5)
			continue;
		memcpy(&disp, code + i + 3, sizeof(disp));
		ret[found++] = svma + i + 7 + (u64)(s64)disp;
	}
	return found;
}

static bool has_load(const u64 *loads, u32 n, u64 svma)
{
	for (u32 i = 0; i < n; i++)
		if (loads[i] == svma)
			return true;
	return false;
}

/* 0: none, or more than one. */
static u64 find_slice(const u64 *loads, u32 n)
{
	u64 slice = 0;

	for (u32 i = 0; i < n; i++) {
		if (loads[i] == slice || loads[i] % 8 || !has_load(loads, n, loads[i] + 8) ||
		    !has_load(loads, n, loads[i] + 16))
			continue;
		if (slice)
			return 0;
		slice = loads[i];
	}
	return slice;
}

static u64 find_allgs(const struct pclntab *t, const struct go_func *f)
{
	u8 code[CODE_MAX];
	u64 loads[LOADS_MAX];
	ssize_t n = elf_file_copy(t->elf, f->start, MIN(sizeof(code), (size_t)(f->end - f->start)),
				  code);

	return n > 0 ? find_slice(loads, find_loads(code, (size_t)n, f->start, loads)) : 0;
}

/* Functions are sorted by address, so that neighbours become one range. */
static int find_code(const struct pclntab *t, struct go_goroutines *g)
{
	vec(struct go_range) ranges = {};
	int r = 0;

	for (u32 i = 0; i < t->n && r == 0; i++) {
		struct go_func f;
		const char *name;

		if (!pclntab_func(t, i, &f))
			continue;
		name = pclntab_short_name(t, f.name);
		if (strncmp(name, "runtime.", 8) != 0)
			continue;
		if (!g->allgs && !strcmp(name, "runtime.allgadd"))
			g->allgs = find_allgs(t, &f);
		if (ranges.n && ranges.data[ranges.n - 1].end == f.start)
			ranges.data[ranges.n - 1].end = f.end;
		else
			r = ranges.n < RANGES_MAX
				    ? vec_push(&ranges, (struct go_range){f.start, f.end})
				    : -E2BIG;
	}
	g->runtime = ranges.data;
	g->n_runtime = (u32)ranges.n;
	return r < 0 ? r : g->allgs ? 0 : -ENOTSUP;
}

int go_goroutines_find(struct elf_file *elf, struct go_goroutines *ret)
{
	struct go_goroutines g = {};
	struct go_layout layout = {};
	struct go_labels labels;
	struct pclntab t = {};
	int r = elf->machine == EM_X86_64 ? go_labels_find(elf, &labels) : -ENOTSUP;

	if (r == 0)
		r = pclntab_open_with_text(elf, &t);
	if (r < 0)
		return r;
	go_layout_read(&t, &layout);
	if (!layout.known)
		return -ENOTSUP;
	g.g_id = labels.g_id;
	g.g_bp = (u16)layout.g_bp;
	r = find_code(&t, &g);
	if (r < 0) {
		go_goroutines_deinit(&g);
		return r;
	}
	*ret = g;
	return 0;
}

void go_goroutines_deinit(struct go_goroutines *g)
{
	free(g->runtime);
	*g = (struct go_goroutines){};
}

bool go_goroutines_is_runtime(const struct go_goroutines *g, u64 svma)
{
	u32 low = 0, high = g->n_runtime;

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (svma < g->runtime[middle].start)
			high = middle;
		else if (svma >= g->runtime[middle].end)
			low = middle + 1;
		else
			return true;
	}
	return false;
}
