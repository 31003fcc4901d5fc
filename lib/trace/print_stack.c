/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks: a newline, then a line for each frame, leaf first, as bpftrace has them. What follows the
 * name is ours: the place in the source, and the runtime of a frame that is not native code.
 *
 *	        leaf_py (calls.py:4) [python]
 *	        do_read+0x… (libfoo.so.1)
 */
#include "base/vocab.h"
#include "profile/profile.h"
#include "trace/print.h"

#define INDENT "        "

/* "python": of what the frame is; "": native code and the kernel's, which need no mark. */
static const char *mark_of(const struct profile_frame *f)
{
	switch (f->kind) {
	case FRAME_NATIVE:
	case FRAME_KERNEL:
	case FRAME_UNKNOWN:
	case FRAME_NOTE:
		return "";
	default:
		return vocab_frame_kind(f->kind)->name;
	}
}

static void put_named(const struct profile *pr, u32 id, struct str *out)
{
	const struct profile_frame *f = &pr->frames.data[id];
	const char *mark = mark_of(f), *file = "";
	_cleanup_str_ struct str scratch = {};

	if (f->function != PROFILE_NONE)
		file = profile_string(pr, pr->functions.data[f->function].file);
	str_printf(out, INDENT "%s", profile_frame_name(pr, id, &scratch));
	if (f->line && file[0])
		str_printf(out, " (%s:%u)", profile_basename(file), f->line);
	if (f->flags & PROFILE_FRAME_INLINED)
		str_puts(out, " [inlined]");
	if (mark[0])
		str_printf(out, " [%s]", mark);
	str_putc(out, '\n');
}

static const char *binary_of(const struct profile *pr, const struct profile_frame *f)
{
	return f->mapping == PROFILE_NONE ? "[unknown]"
					  : profile_string(pr, pr->mappings.data[f->mapping].path);
}

static void put_frame(enum trace_stack_mode mode, const struct profile *pr, u32 id, struct str *out)
{
	const struct profile_frame *f = &pr->frames.data[id];
	_cleanup_str_ struct str scratch = {};

	if (mode == TRACE_STACK_NAMES)
		put_named(pr, id, out);
	else if (mode == TRACE_STACK_PERF)
		str_printf(out, "\t%llx %s (%s)\n", f->address,
			   profile_frame_name(pr, id, &scratch), binary_of(pr, f));
	else if (f->function != PROFILE_NONE && !f->address)
		put_named(pr, id, out); /* a frame of an interpreter */
	else
		str_printf(out, "%llx\n", f->address);
}

void trace_stack_text(const struct trace_printer *p, const struct trace_type *t, u64 id, u32 pid,
		      struct str *out)
{
	const struct trace_names *n = &p->names;
	const struct profile *pr = NULL;
	const struct profile_stack *s;
	u32 stack;

	str_putc(out, '\n');
	if (id && n->stack)
		pr = n->stack(n->arg, id, pid, &stack);
	if (!pr)
		return;
	s = &pr->stacks.data[stack];
	for (u32 i = 0; i < s->n && (!t->n || i < t->n); i++)
		put_frame(t->bytes, pr, pr->stack_frames.data[s->first + i], out);
}
