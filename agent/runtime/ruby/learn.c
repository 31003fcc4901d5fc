/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Learns from a binary of Ruby: its version, the offsets of that version, and where a thread keeps
 * its execution context. The code of two functions shows the latter:
 *
 *	rb_errinfo		(3.0 on) thread-local storage → context → errinfo
 *	ruby_native_thread_p	(before) pthread_getspecific() of the key of the rb_thread_t
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/runtime/binary.h"
#include "agent/runtime/ruby/ruby.h"

/*
 * Measured with offsetof() on the sources of 2.7.4, 3.1.2 and 3.3.8 with Debian's config.h; 3.4
 * with RubyVM::RJIT::C of 3.4.11, which knows the offsets of its own build.
 */
static const struct ruby_layout layouts[] = {
	{0x0207, 32, 120, 56, 0, 120, 136, 144, 168, 176, 8, 16, false},
	{0x0301, 0, 112, 64, 56, 120, 136, 144, 168, 176, 12, 16, false},
	{0x0303, 0, 120, 56, 48, 112, 128, 136, 160, 168, 12, 24, false},
	{0x0304, 0, 112, 56, 48, 112, 128, 136, 160, 168, 12, 24, true},
};

const struct ruby_layout *ruby_layout(u32 version)
{
	for (u32 i = 0; i < ARRAY_SIZE(layouts); i++)
		if (layouts[i].version == version)
			return &layouts[i];
	return NULL;
}

static int find_version(struct elf_file *elf, struct ruby_learned *l, struct diag *d)
{
	const struct ruby_layout *layout;
	u32 major, minor;
	u64 at;

	if (!runtime_symbol(elf, "ruby_version", &at, NULL) ||
	    elf_file_copy(elf, at, sizeof(l->version) - 1, l->version) <= 0 ||
	    sscanf(l->version, "%2u.%2u.", &major, &minor) != 2)
		return diag_set(d, -ENOTSUP, "ruby_version does not give the version of Ruby");
	for (char *p = l->version; *p; p++)
		if ((*p < '0' || *p > '9') && *p != '.')
			*p = 0;
	layout = ruby_layout(major << 8 | minor);
	if (layout) {
		l->layout = *layout;
		return 0;
	}
	return diag_set(d, -ENOTSUP,
			"Ruby %u.%u: the layout of its objects is not known; 2.7, 3.1, 3.3 and 3.4 "
			"are supported",
			major, minor);
}

struct context_reader {
	struct runtime_code code;
	struct runtime_tls *tls;
	u32 errinfo;
};

/* rb_errinfo() returns *(context + errinfo). */
static bool on_errinfo(void *arg, const struct exec *x, enum exec_event event,
		       const struct exec_value *value)
{
	struct context_reader *r = arg;
	struct exec_value at;

	if (event != EXEC_RETURNS || !exec_is_load(x, value, 8, &at) || at.n != 1 ||
	    at.constant > UINT16_MAX)
		return false;
	r->errinfo = (u32)at.constant;
	at.constant = 0;
	return runtime_is_tls(x, &at, r->tls);
}

/* ruby_native_thread_p() passes the key to pthread_getspecific(). */
static bool on_thread_p(void *arg, const struct exec *x, enum exec_event event,
			const struct exec_value *value)
{
	struct context_reader *r = arg;

	return event == EXEC_CALLS && runtime_is_key(x, value, r->tls);
}

static int learn_thread(struct elf_file *elf, struct ruby_learned *l, struct diag *d)
{
	struct context_reader r = {.code.elf = elf, .tls = &l->thread};
	struct exec_program p = {.code = runtime_code_at,
				 .constant = runtime_constant_at,
				 .event = on_errinfo,
				 .arg = &r};
	const char *name = "rb_errinfo";
	u64 at;
	int e = 0;

	l->by_thread = l->layout.thread_context;
	if (l->by_thread) {
		name = "ruby_native_thread_p";
		p.event = on_thread_p;
	}
	if (runtime_symbol(elf, name, &at, NULL))
		e = exec_run(&p, elf->machine, at);
	if (e < 0)
		return diag_set(d, e, "code of this machine is not understood yet");
	if (!l->thread.kind)
		return diag_set(d, -ENOTSUP, "Ruby %s: the code of %s is not understood",
				l->version, name);
	if (!l->by_thread && r.errinfo != l->layout.errinfo)
		return diag_set(
			d, -ENOTSUP,
			"Ruby %s: the offsets of this build differ from those of its version "
			"(errinfo is at %u and not at %u)",
			l->version, r.errinfo, l->layout.errinfo);
	return 0;
}

int ruby_learn(struct elf_file *elf, struct ruby_learned *ret, struct diag *reterr_diag)
{
	struct ruby_binary *b = &ret->bpf;
	int r = find_version(elf, ret, reterr_diag);

	/* On arm64 the callers of methods in C are not found: these would be in a wrong place. */
	if (r == 0 && elf->machine != EM_X86_64)
		return diag_set(reterr_diag, -ENOTSUP, "Ruby %s: read on x86-64 only",
				ret->version);
	if (r == 0)
		r = learn_thread(elf, ret, reterr_diag);
	if (r == 0)
		r = ruby_learn_code(elf, ret, reterr_diag);
	if (r < 0)
		return r;
	(void)runtime_symbol(elf, "ruby_current_vm_ptr", &ret->vm, NULL);
	b->frame_bytes = ret->layout.frame;
	b->frame_jit = ret->layout.frame_jit / 8;
	b->thread_context = ret->layout.thread_context;
	b->owners = ret->layout.owners;
	return 0;
}
