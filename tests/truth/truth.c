/* SPDX-License-Identifier: Apache-2.0 */
/* The shadow stack; see truth.h. */
#include "truth.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_NODES 200000

static struct truth_node nodes[MAX_NODES];
static int n_nodes = 1;	    /* 0 is the root */
static char names[1 << 20]; /* copies, because a library with the name may be unloaded */
static int n_names;
static __thread struct truth_node *at __attribute__((tls_model("initial-exec")));
static long long budget_ns = 1000000000;
static struct {
	char key[32];
	long long value;
} notes[64];
static int n_notes;

static long long clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

long long truth_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

int truth_running(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID) < budget_ns;
}

void truth_init(int argc, char **argv)
{
	if (argc > 1)
		budget_ns = atoll(argv[1]) * 1000000;
}

void truth_note(const char *key, long long value)
{
	if (n_notes == 64)
		return;
	snprintf(notes[n_notes].key, sizeof(notes[0].key), "%s", key);
	notes[n_notes++].value = value;
}

/* Two threads may add the same child at once; the two nodes are then equal. */
static struct truth_node *truth_child(struct truth_node *parent, const char *name)
{
	struct truth_node *c;
	int i, n = (int)strlen(name) + 1, at_name;

	for (c = __atomic_load_n(&parent->child, __ATOMIC_ACQUIRE); c; c = c->next)
		if (!strcmp(c->name, name))
			return c;
	i = __atomic_fetch_add(&n_nodes, 1, __ATOMIC_RELAXED);
	at_name = __atomic_fetch_add(&n_names, n, __ATOMIC_RELAXED);
	if (i >= MAX_NODES || at_name + n > (int)sizeof(names))
		abort();
	c = &nodes[i];
	c->name = memcpy(&names[at_name], name, n);
	c->parent = parent;
	c->next = __atomic_load_n(&parent->child, __ATOMIC_ACQUIRE);
	while (!__atomic_compare_exchange_n(&parent->child, &c->next, c, 0, __ATOMIC_RELEASE,
					    __ATOMIC_ACQUIRE))
		;
	return c;
}

struct truth_node *truth_enter(const char *name)
{
	struct truth_node *was = at ? at : &nodes[0];

	at = truth_child(was, name);
	__asm__ volatile("" ::: "memory"); /* a signal handler must see the new place */
	return was;
}

struct truth_node *truth_enter_inlined(const char *name)
{
	char marked[128] = "~";

	strncat(marked, name, sizeof(marked) - 2);
	return truth_enter(marked);
}

void truth_back(struct truth_node *node)
{
	__asm__ volatile("" ::: "memory");
	at = node;
}

void truth_leave(struct truth_node **node)
{
	__asm__ volatile("" ::: "memory");
	at = *node;
}

void truth_knows(const char *name)
{
	truth_child(at ? at : &nodes[0], name);
}

void truth_finish(void)
{
	const char *dir = getenv("TRUTH_OUT");
	char path[4096], comm[32] = "";
	FILE *f;

	if (!dir)
		return;
	f = fopen("/proc/self/comm", "r");
	if (f && fgets(comm, sizeof(comm), f))
		comm[strcspn(comm, "\n")] = 0;
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "%s/%s.%d", dir, comm, (int)getpid());
	f = fopen(path, "w");
	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	for (int i = 1; i < n_nodes; i++)
		fprintf(f, "%d %d %s\n", i, (int)(nodes[i].parent - nodes), nodes[i].name);
	for (int i = 0; i < n_notes; i++)
		fprintf(f, "# %s %lld\n", notes[i].key, notes[i].value);
	fclose(f);
}

long truth_about(long n)
{
	static unsigned long x = 88172645463325252UL; /* races between threads do no harm */

	x = x * 6364136223846793005UL + 1442695040888963407UL;
	return (long)((0.125 + 1.75 * (double)(x >> 33) / (1UL << 31)) * (double)n);
}

NOINLINE void spin(long n)
{
	TRUTH();
	unsigned long x = 88172645463325252UL;

	n = truth_about(n);

	for (long i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__asm__ volatile("" : "+r"(x));
	}
}
