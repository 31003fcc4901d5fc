/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demangles names with libiberty.
 *
 * Names come from hostile files. libiberty bounds its recursion, but not its output, which a few
 * dozen back references can double each. Therefore
 *  1. names longer than MAX_MANGLED are not demangled (libiberty's use of stack grows with the
 *     name),
 *  2. C++ and Rust go through the callback interface, and the callback leaves with longjmp() once
 *     the output is larger than MAX_DEMANGLED. libiberty keeps its state on the stack there; only a
 *     Rust identifier in punycode may leak, a few hundred bytes for a malicious name,
 *  3. rust_v0.c reads names of Rust's v0 scheme once before,
 *  4. D has no callback; there the number of back references is bounded instead.
 *
 * Suffixes that a compiler adds to a part or a copy of a function (`.cold`, `.part.0`, `.isra.0`
 * ...) are dropped: time in them is time in the function, and DWARF has no suffixes either.
 * `._omp_fn.0` stays, because it is a function of its own.
 */
#include "symbol/symbol.h"

#include <ctype.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "symbol/rust_v0.h"

#define MAX_MANGLED 4096
#define MAX_DEMANGLED 16384
#define MAX_D_BACKREFS 40

static const struct {
	const char *word;
	bool numbered; /* always */
} clones[] = {{"cold", false},	  {"part", true},	 {"isra", true}, {"constprop", true},
	      {"lto_priv", true}, {"localalias", false}, {"llvm", true}, {"warm", false}};

/* The length of `.word` with any `.digits` after it, if `s` starts with a clone suffix. */
static size_t clone_suffix(const char *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(clones); i++) {
		size_t n = 1 + strlen(clones[i].word), digits = 0;

		if (strncmp(s + 1, clones[i].word, n - 1) != 0 || (s[n] && s[n] != '.'))
			continue;
		while (s[n] == '.' && isdigit((unsigned char)s[n + 1])) {
			for (n++; isdigit((unsigned char)s[n]); n++)
				digits++;
		}
		return digits || !clones[i].numbered ? n : 0;
	}
	return 0;
}

/* Offset of the clone suffixes of a name: its length if it has none. */
static size_t name_end(const char *name)
{
	const char *dot = name[0] ? strchr(name + 1, '.') : NULL;

	for (; dot; dot = strchr(dot + 1, '.')) {
		const char *p = dot;

		while (*p == '.') {
			size_t n = clone_suffix(p);

			if (!n)
				break;
			p += n;
		}
		if (!*p)
			return (size_t)(dot - name);
	}
	return strlen(name);
}

struct output {
	struct str text;
	jmp_buf too_long;
};

static void output_add(const char *bytes, size_t n, void *arg)
{
	struct output *o = arg;

	if (o->text.n + n > MAX_DEMANGLED || str_append(&o->text, bytes, n) < 0)
		longjmp(o->too_long, 1);
}

/* -1 if the name is not mangled in this way, or is malicious. */
static int run_demangler(const char *name, int options,
			 int (*demangler)(const char *, int, demangle_callbackref, void *),
			 struct output *o)
{
	str_clear(&o->text);
	if (setjmp(o->too_long))
		return -1;
	return demangler(name, options, output_add, o) && o->text.n ? 0 : -1;
}

static char *demangle_d(const char *name)
{
	size_t backrefs = 0;

	for (const char *p = name; *p; p++)
		backrefs += *p == 'Q';
	return backrefs > MAX_D_BACKREFS ? NULL : dlang_demangle(name, DMGL_PARAMS);
}

static char *demangle_itanium_or_rust(const char *name)
{
	/* Without this flag libiberty refuses every name longer than 1024 bytes. */
	int options = DMGL_PARAMS | DMGL_ANSI | DMGL_NO_RECURSE_LIMIT;
	struct output *o = calloc(1, sizeof(*o));
	char *text = NULL;

	if (!o)
		return NULL;
	if ((name[1] == 'Z' || rust_v0_is_harmless(name)) &&
	    run_demangler(name, DMGL_PARAMS | DMGL_ANSI, rust_demangle_callback, o) == 0)
		text = take_ptr(o->text.data);
	else if (name[1] == 'Z' && run_demangler(name, options, cplus_demangle_v3_callback, o) == 0)
		text = take_ptr(o->text.data);
	str_deinit(&o->text);
	free(o);
	return text;
}

char *symbol_demangle(const char *name)
{
	_cleanup_free_ char *base = NULL;
	size_t n = strnlen(name, MAX_MANGLED + 1);
	size_t end;
	char *text = NULL;

	if (n > MAX_MANGLED || n == 0)
		return NULL;
	end = name_end(name);
	base = strndup(name, end);
	if (!base)
		return NULL;
	if (str_starts(base, "_Z") || str_starts(base, "_R"))
		text = demangle_itanium_or_rust(base);
	else if (str_starts(base, "_D"))
		text = demangle_d(base);
	if (!text && end < n)
		text = take_ptr(base);
	return text;
}
