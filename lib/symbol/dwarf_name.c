/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a function: the linkage name of its DIE or of the DIE's origin, which is complete
 * once demangled; else DW_AT_name, with the surrounding namespaces and classes.
 */
#include "symbol/dwarf.h"

#include <dwarf.h>
#include <string.h>

#define MAX_HOPS 16
#define MAX_DEPTH 64
#define MAX_QUALIFIED 8192U

static bool is_plain_c(u16 language)
{
	switch (language) {
	case DW_LANG_C:
	case DW_LANG_C89:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case 0x2c: /* DW_LANG_C17 */
	case DW_LANG_Mips_Assembler:
		return true;
	default:
		return false;
	}
}

static bool is_scope(u16 tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_class_type ||
	       tag == DW_TAG_structure_type || tag == DW_TAG_union_type ||
	       tag == DW_TAG_interface_type || tag == DW_TAG_module || tag == DW_TAG_subprogram;
}

static const char *scope_name(struct dw_unit *u, const struct dw_die *d)
{
	const char *name = dw_has(d, DW_A_NAME) ? dw_string(u, &d->v[DW_A_NAME]) : NULL;

	if (name)
		return name;
	if (d->tag == DW_TAG_namespace)
		return "(anonymous namespace)";
	return d->tag == DW_TAG_subprogram ? NULL : "{unnamed}";
}

/*
 * Finds the scopes around a DIE, outermost first, by walking down from the unit's root, because
 * DIEs do not refer to their parents. Returns their number, or -1.
 */
static int find_scopes(struct dw_unit *u, u64 target, const char *scopes[MAX_DEPTH])
{
	const char *names[MAX_DEPTH];
	u64 offset = u->root.next;
	struct dw_die d;
	int depth = 0, n = 0;

	if (!u->root.children)
		return -1;
	while (offset < target) {
		if (!dw_die_read(u, offset, &d))
			return -1;
		offset = d.next;
		if (!d.tag) {
			if (depth-- == 0)
				return -1;
			continue;
		}
		if (!d.children)
			continue;
		if (dw_has(&d, DW_A_SIBLING) && d.v[DW_A_SIBLING].u <= target &&
		    d.v[DW_A_SIBLING].u > d.offset) {
			offset = d.v[DW_A_SIBLING].u;
			continue;
		}
		if (depth >= MAX_DEPTH)
			return -1;
		names[depth++] = is_scope(d.tag) ? scope_name(u, &d) : NULL;
	}
	for (int i = 0; i < depth; i++)
		if (names[i])
			scopes[n++] = names[i];
	return offset == target ? n : -1;
}

static const char *qualify(struct dw_unit *u, u64 die, const char *name)
{
	const char *scopes[MAX_DEPTH];
	size_t total = strlen(name) + 1;
	int n = find_scopes(u, die, scopes);
	char *text, *p;

	if (n <= 0)
		return name;
	for (int i = 0; i < n; i++)
		total += strlen(scopes[i]) + 2;
	text = total <= MAX_QUALIFIED ? dw_scratch(u->file->dwarf, total) : NULL;
	if (!text)
		return name;
	p = text;
	for (int i = 0; i < n; i++) {
		p = stpcpy(p, scopes[i]);
		p = stpcpy(p, "::");
	}
	(void)stpcpy(p, name);
	return text;
}

void dw_name(struct dw_unit *u, const struct dw_die *die, struct dwarf_frame *frame)
{
	struct dw_unit *name_unit = NULL;
	const char *name = NULL;
	struct dw_die d = *die;
	u64 name_die = 0;

	frame->plain_c = is_plain_c(u->language);
	for (int hop = 0; hop < MAX_HOPS; hop++) {
		enum dw_slot next = dw_has(&d, DW_A_ORIGIN) ? DW_A_ORIGIN : DW_A_SPECIFICATION;
		u64 offset;

		if (!frame->linkage_name && dw_has(&d, DW_A_LINKAGE_NAME))
			frame->linkage_name = dw_string(u, &d.v[DW_A_LINKAGE_NAME]);
		if (!name && dw_has(&d, DW_A_NAME))
			name = dw_string(u, &d.v[DW_A_NAME]);
		if (!frame->start_line && dw_has(&d, DW_A_DECL_LINE))
			frame->start_line = (u32)d.v[DW_A_DECL_LINE].u;
		/* The scopes are those of the DIE at the end of the chain. */
		name_unit = u;
		name_die = d.offset;
		if (!dw_has(&d, next))
			break;
		u = dw_follow(u, &d.v[next], &offset);
		if (!u || !dw_die_read(u, offset, &d))
			break;
	}
	if (frame->linkage_name && !*frame->linkage_name)
		frame->linkage_name = NULL;
	if (!name || !*name)
		return;
	frame->name =
		frame->linkage_name || frame->plain_c ? name : qualify(name_unit, name_die, name);
}
