/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matches regular expressions with PCRE2's JIT, in chains of functions that test_pcre2.py knows:
 * main, one of the functions below with a name of its own, at_depth(), and the library.
 *
 *	matches PATH-OF-LIBRARY SECONDS
 *
 * at_depth() takes a different amount of stack each time, so that return addresses of earlier
 * matches remain at all places of the stack. Declarations are repeated from pcre2.h, so that the
 * program can be built where only the library is.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ZERO_TERMINATED (~(size_t)0)
#define JIT_ALL 7u
#define PARTIAL_HARD 0x20u
#define UTF 0x80000u
#define UCP 0x20000u

static void *(*compile)(const char *, size_t, uint32_t, int *, size_t *, void *);
static int (*jit_compile)(void *, uint32_t);
static void *(*match_data)(void *, void *);
static void *(*context)(void *);
static void *(*stack_create)(size_t, size_t, void *);
static void (*stack_assign)(void *, void *, void *);
static int (*set_callout)(void *, int (*)(void *, void *), void *);
typedef int matcher(void *, const char *, size_t, size_t, uint32_t, void *, void *);
static matcher *match, *jit_match;

static char text[4096];

struct pattern {
	void *code, *data, *context;
	matcher *with;
	uint32_t options;
	int turn;
};

static void *symbol(void *library, const char *name)
{
	void *s = dlsym(library, name);

	if (!s) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	return s;
}

static struct pattern prepare(const char *pattern, uint32_t options)
{
	struct pattern p = {.with = match};
	size_t offset;
	int error;

	p.code = compile(pattern, ZERO_TERMINATED, options, &error, &offset, NULL);
	if (!p.code || jit_compile(p.code, JIT_ALL)) {
		fprintf(stderr, "%s: not compiled\n", pattern);
		exit(2);
	}
	p.data = match_data(p.code, NULL);
	p.context = context(NULL);
	return p;
}

__attribute__((noinline)) static int at_depth(struct pattern *p, size_t n)
{
	size_t bytes = 16 * (size_t)(p->turn++ * 7 % 300) + 16;
	volatile char *room = __builtin_alloca(bytes);
	int r;

	room[0] = 1;
	r = p->with(p->code, text, n, 0, p->options, p->data, p->context);
	room[bytes - 1] = (char)r;
	return room[0];
}

/* A function for each pattern, so that a chain tells which pattern it is. */
#define THROUGH(name)                                                                              \
	static struct pattern pattern_##name;                                                      \
	__attribute__((noinline)) static int through_##name(size_t n)                              \
	{                                                                                          \
		int r = at_depth(&pattern_##name, n);                                              \
                                                                                                   \
		__asm__ volatile("" : "+r"(r)); /* no tail call */                                 \
		return r;                                                                          \
	}

THROUGH(own)	   /* the stack for backtracking is in the library's frame */
THROUGH(given)	   /* and here it is the program's */
THROUGH(direct)	   /* pcre2_jit_match() */
THROUGH(partial)   /* code of another kind of matching */
THROUGH(groups)	   /* many local variables */
THROUGH(recursive) /* calls within the code */
THROUGH(unicode)   /* functions of C that the code calls */
THROUGH(short)	   /* a few instructions only */
THROUGH(outer)	   /* calls back */
THROUGH(inner)

__attribute__((noinline)) static int called_back(void *block, void *arg)
{
	(void)block;
	(void)arg;
	return through_inner(256) < 0;
}

static void load(const char *path)
{
	void *l = dlopen(path, RTLD_NOW);

	if (!l) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
	compile = symbol(l, "pcre2_compile_8");
	jit_compile = symbol(l, "pcre2_jit_compile_8");
	match_data = symbol(l, "pcre2_match_data_create_from_pattern_8");
	context = symbol(l, "pcre2_match_context_create_8");
	stack_create = symbol(l, "pcre2_jit_stack_create_8");
	stack_assign = symbol(l, "pcre2_jit_stack_assign_8");
	set_callout = symbol(l, "pcre2_set_callout_8");
	match = symbol(l, "pcre2_match_8");
	jit_match = symbol(l, "pcre2_jit_match_8");
}

static void prepare_all(void)
{
	static const char group[] = "(?:(\\w)|(\\d)(?=x))?+", end[] = "[=#]";
	char groups[100 * (sizeof(group) - 1) + sizeof(end)];

	for (size_t i = 0; i < 100; i++)
		memcpy(groups + i * (sizeof(group) - 1), group, sizeof(group) - 1);
	memcpy(groups + 100 * (sizeof(group) - 1), end, sizeof(end));
	pattern_own = prepare("(\\w+)\\s+(\\w+)[=#]", 0);
	pattern_given = prepare("(\\w+)\\s+(\\w+)[=#]", 0);
	stack_assign(pattern_given.context, NULL, stack_create(32768, 1 << 20, NULL));
	pattern_direct = prepare("(?:a|b|cd)+[e-h]{2,}?[=#]", 0);
	pattern_direct.with = jit_match;
	pattern_partial = prepare("(\\w+)\\s+(\\w+)[=#]", 0);
	pattern_partial.options = PARTIAL_HARD;
	pattern_groups = prepare(groups, 0);
	stack_assign(pattern_groups.context, NULL, stack_create(32768, 1 << 20, NULL));
	pattern_recursive = prepare("(\\((?:[^()]|(?1))*\\))[=#]", 0);
	pattern_unicode = prepare("(?:\\X\\X)+?[=#]", UTF | UCP);
	pattern_short = prepare("a", 0);
	pattern_outer = prepare("h(?C1) (\\w+)[=#]", 0);
	stack_assign(pattern_outer.context, NULL, stack_create(32768, 1 << 20, NULL));
	set_callout(pattern_outer.context, called_back, NULL);
	pattern_inner = prepare("(\\w+)\\s+(\\w+)[=#]", 0);
}

int main(int argc, char **argv)
{
	time_t end;

	if (argc != 3)
		return 1;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "abcdefgh ijk (lm(n)(op) 7)"[i % 26];
	load(argv[1]);
	prepare_all();
	puts("ready");
	fflush(stdout);
	for (end = time(NULL) + strtol(argv[2], NULL, 10); time(NULL) < end;) {
		through_own(sizeof(text));
		through_given(sizeof(text));
		through_direct(sizeof(text));
		through_partial(sizeof(text));
		through_groups(32);
		through_recursive(sizeof(text));
		through_unicode(96);
		for (int i = 0; i < 200; i++)
			through_short(sizeof(text));
		through_outer(sizeof(text));
	}
	return 0;
}
