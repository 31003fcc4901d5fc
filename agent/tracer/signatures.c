/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of functions by debug information: in the file itself, or in its debug file, by
 * build-id or .gnu_debuglink.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tracer/internal.h"
#include "base/cleanup.h"
#include "symbol/debugfile.h"

/* Copies whose parameters gcc has removed or replaced: IPA-SRA, constant propagation, splitting. */
static bool is_changed_copy(const char *name)
{
	return strstr(name, ".isra.") || strstr(name, ".constprop.") || strstr(name, ".part.") ||
	       strstr(name, ".cold");
}

static void open_signatures(struct tracer_file *f)
{
	struct debugfile_place place = {.root_fd = -1, .path = f->path};

	if (f->has_signatures)
		return;
	f->has_signatures = true;
	if (signatures_open(f->elf, &place, &f->signatures) == 0 ||
	    debugfile_find(f->elf, &place, &f->types, &f->types_path) < 0)
		return;
	place.path = f->types_path;
	(void)signatures_open(f->types, &place, &f->signatures);
}

static int read_signature(struct tracer_file *f, u64 svma, const struct signature **ret)
{
	struct signature *s = calloc(1, sizeof(*s));
	int r = s ? signatures_read(f->signatures, svma, s) : -ENOMEM;

	if (r == 0)
		r = vec_push(&f->known_signatures, (struct tracer_signature){svma, s});
	if (r < 0) {
		if (s)
			signature_deinit(s);
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int tracer_file_signature(struct tracer_file *f, const struct tracer_function *fn,
			  const struct signature **ret, struct diag *reterr_diag)
{
	if (is_changed_copy(fn->name))
		return diag_set(reterr_diag, -ENOENT,
				"the compiler has changed the parameters of %s", fn->name);
	if (f->is_go && !f->has_go_registers)
		return diag_set(reterr_diag, -ENOENT,
				"Go passes arguments on the stack before version 1.17");
	vec_foreach (&f->known_signatures, k)
		if (k->svma == fn->svma) {
			*ret = k->signature;
			return 0;
		}
	open_signatures(f);
	if (!f->signatures)
		return diag_set(reterr_diag, -ENOENT, "%s has no debug information", f->path);
	if (read_signature(f, fn->svma, ret) < 0)
		return diag_set(reterr_diag, -ENOENT, "%s has no debug information for %s", f->path,
				fn->name);
	return 0;
}

int tracer_file_line(struct tracer_file *f, const char *source, u32 line, signature_places *ret,
		     struct diag *reterr_diag)
{
	u32 next = 0;
	int r;

	open_signatures(f);
	if (!f->signatures)
		return diag_set(reterr_diag, -ENOENT, "%s has no debug information", f->path);
	r = signatures_line(f->signatures, source, line, ret, &next);
	if (r == -ENOENT && next)
		return diag_set(reterr_diag, r, "line %u of %s has no code; line %u has", line,
				source, next);
	return r < 0 ? diag_set(reterr_diag, r,
				r == -ENOENT ? "%s has no code of line %u of %s or behind it"
					     : "%s has too many places of line %u of %s",
				f->path, line, source)
		     : 0;
}

void tracer_file_forget_signatures(struct tracer_file *f)
{
	vec_foreach (&f->known_signatures, k) {
		signature_deinit(k->signature);
		free(k->signature);
	}
	vec_deinit(&f->known_signatures);
	signatures_close(f->signatures);
	elf_file_destroy(f->types);
	free(f->types_path);
}
