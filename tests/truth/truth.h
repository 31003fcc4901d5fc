/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every ground-truth program shares: a shadow stack.
 *
 * Each function of a program that matters says TRUTH() first. That moves the thread's place in a
 * tree of calls one down, and back up when the function is left. The tree at the end holds each
 * chain of functions that existed at any moment, and no other: a sampled stack, reduced to the
 * names in the tree, must be a path from the root to some node. The leaf that burns time, spin(),
 * is entered only where a program means it to, so a stack that lost or gained frames is no path.
 *
 * Nodes come from a fixed array with an atomic index, so that signal handlers and vfork children
 * can add some. truth_finish() writes the tree to $TRUTH_OUT/COMM.PID: lines "id parent name",
 * the names of inlined functions with a ~ before them.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif
#define INLINED inline __attribute__((always_inline))

struct truth_node {
	const char *name;
	struct truth_node *parent, *child, *next;
};

/* argv[1], when there is one, is the CPU time to burn in ms (default 1000). */
void truth_init(int argc, char **argv);
/* Whether the process has CPU time left. */
int truth_running(void);
void truth_finish(void);
/* CPU time of this thread in ns. */
long long truth_cpu_ns(void);
/* A line "# key value" for the test. */
void truth_note(const char *key, long long value);

/* Goes one down; truth_leave() of the result goes back to where it was. */
struct truth_node *truth_enter(const char *name);
void truth_leave(struct truth_node **node);
/* The same for a function that the compiler inlines: it is on the stack as a name only. */
struct truth_node *truth_enter_inlined(const char *name);
/* truth_leave() for those who must not give the address of a variable away. */
void truth_back(struct truth_node *node);
/* Says that `name` may be called from here, for callees that are too small to say it. */
void truth_knows(const char *name);

#define TRUTH()                                                                                    \
	struct truth_node *truth_here_ __attribute__((cleanup(truth_leave), unused)) =             \
		truth_enter(__func__)
#define TRUTH_INLINED()                                                                            \
	struct truth_node *truth_here_ __attribute__((cleanup(truth_leave), unused)) =             \
		truth_enter_inlined(__func__)

/* A random number around n, n on average, so that no loop beats with the sampling clock. */
long truth_about(long n);
/* Burns CPU without calling anything; about n / 300 microseconds, never equally long. */
void spin(long n);

#ifdef __cplusplus
}
#endif
