/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shadow stack of the ground-truth programs.
 *
 * Each relevant function of a program begins with TRUTH(), which moves the thread's place in a tree
 * of calls one level down, and back up when the function returns. In the end the tree has each
 * chain of functions that existed at any moment, and no others: a sampled stack, reduced to the
 * names in the tree, must be a path from the root to a node. spin(), the leaf that uses the CPU, is
 * entered only at intended places, so that a stack with missing or additional frames is no path.
 *
 * Nodes are taken from a fixed array with an atomic index, so that signal handlers and vfork
 * children can add nodes. truth_finish() writes the tree to $TRUTH_OUT/COMM.PID: lines
 * "id parent name", with a ~ before the names of inlined functions.
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

/* argv[1] is the CPU time to use, in ms (default 1000). */
void truth_init(int argc, char **argv);
/* Tells whether the process has CPU time left. */
int truth_running(void);
void truth_finish(void);
/* Returns the CPU time of this thread in ns. */
long long truth_cpu_ns(void);
/* Writes a line "# key value" for the test. */
void truth_note(const char *key, long long value);

/* Moves one level down. truth_leave() with the result moves back. */
struct truth_node *truth_enter(const char *name);
void truth_leave(struct truth_node **node);
/* The same for a function that the compiler inlines: it is on the stack as a name only. */
struct truth_node *truth_enter_inlined(const char *name);
/* Like truth_leave(), for functions that must not take the address of a variable. */
void truth_back(struct truth_node *node);
/* Notes that `name` may be called from here, for callees that are too small for TRUTH(). */
void truth_knows(const char *name);

#define TRUTH()                                                                                    \
	struct truth_node *truth_here_ __attribute__((cleanup(truth_leave), unused)) =             \
		truth_enter(__func__)
#define TRUTH_INLINED()                                                                            \
	struct truth_node *truth_here_ __attribute__((cleanup(truth_leave), unused)) =             \
		truth_enter_inlined(__func__)

/* Returns a random number, n on average, so that no loop runs in step with the sampling clock. */
long truth_about(long n);
/* Uses the CPU without calls, for about n / 300 microseconds, each time for another time. */
void spin(long n);

#ifdef __cplusplus
}
#endif
