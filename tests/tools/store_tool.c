/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store under torture (tests/server/test_store.py).
 *
 *	store_tool ingest DIR FROM TO [TIER]	writes batches FROM..TO-1 while another thread
 *						maintains, and says "ack K" for each
 *	store_tool fill DIR FROM		writes until an error, says "error ...", waits for a
 *						line on stdin and goes on for 20 batches
 *	store_tool verify DIR			which batches are there: "present FIRST-LAST,...",
 *and whether damage was told. Exit status 1 when anything that is there is not what was written.
 *
 * Batch K is K * 20 s after a fixed time. It has a stack "batch_K" of value K + 1 and 40 of a
 * common pool, all of values that K says, so that what is there can be told from what should be.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/query/query.h"
#include "server/store/store.h"

#define T0 (480000ULL * 3600000)
#define STEP_MS 20000ULL
#define POOL 40
#define MAX_BATCH 1000000

static u32 add_text(struct profile *p, const char *s)
{
	u32 id = 0;

	profile_add_string(p, s, strlen(s), &id);
	return id;
}

static u32 add_frame(struct profile *p, const char *name)
{
	struct profile_frame f = {.mapping = PROFILE_NONE, .kind = FRAME_NATIVE};
	struct profile_function fn = {.name = add_text(p, name)};
	struct profile_mapping m = {.path = add_text(p, "/usr/bin/app"),
				    .build_id = add_text(p, "0123456789abcdef")};
	u32 id = 0;

	fn.system_name = fn.name;
	profile_add_function(p, &fn, &f.function);
	profile_add_mapping(p, &m, &f.mapping);
	profile_add_frame(p, &f, &id);
	return id;
}

static s64 pool_value(u32 k, u32 i)
{
	return 1 + (k * 7 + i * 13) % 50;
}

static s64 pool_sum(u32 k)
{
	s64 sum = 0;

	for (u32 i = 0; i < POOL; i++)
		sum += pool_value(k, i);
	return sum;
}

static void add_stack(struct profile *p, u32 thread, u64 time_ms, const char *leaf, s64 value)
{
	u32 frames[12], stack;
	char name[64];

	frames[0] = add_frame(p, leaf);
	for (u32 i = 1; i < 12; i++) {
		snprintf(name, sizeof(name), "caller_of_%.20s_at_level_%u", leaf, i);
		frames[i] = add_frame(p, name);
	}
	profile_add_stack(p, frames, 12, &stack);
	profile_add_sample(p, time_ms * 1000000, thread, stack, &value);
}

static struct profile *make_batch(u32 k)
{
	struct profile *p = profile_create();
	struct profile_thread t = {};
	u64 time_ms = T0 + k * STEP_MS;
	struct profile_label label;
	char name[64];
	u32 thread;

	snprintf(name, sizeof(name), "service-%u", k % 2);
	label = (struct profile_label){add_text(p, "service.name"), add_text(p, name)};
	profile_add_resource(p, &label, 1, &t.resource);
	t.comm = add_text(p, name);
	profile_add_thread(p, &t, &thread);
	profile_add_type(p, "samples", "count");
	snprintf(name, sizeof(name), "batch_%u", k);
	add_stack(p, thread, time_ms, name, k + 1);
	for (u32 i = 0; i < POOL; i++) {
		snprintf(name, sizeof(name), "pool_%u", (i * 3 + k) % 200);
		add_stack(p, thread, time_ms + i, name, pool_value(k, i));
	}
	return p;
}

static int write_batch(struct store *s, u32 k, struct diag *d)
{
	_cleanup_profile_ struct profile *p = make_batch(k);
	_cleanup_store_batch_ struct store_batch b = {};
	u8 token[16] = {};
	int r = store_batch_init(&b, p, NULL, d);

	memcpy(token, &k, sizeof(k));
	return r < 0 ? r : s->ops->write(s, &b, token, d);
}

static void say(const char *fmt, u32 k)
{
	char line[64];
	int n = snprintf(line, sizeof(line), fmt, k);

	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		exit(3);
}

struct keeping {
	struct store *s;
	_Atomic u32 at, stop;
};

static void *keep_up(void *arg)
{
	struct keeping *m = arg;
	struct diag d;

	while (!m->stop) {
		d = (struct diag){};
		if (m->s->ops->maintain(m->s, T0 + m->at * STEP_MS, &d) < 0)
			fprintf(stderr, "maintain: %s\n", d.text);
		usleep(500);
	}
	return NULL;
}

static struct store *open_or_die(const char *dir)
{
	static const struct store_tier tiers[] = {{2 * 3600, 60000}, {6 * 3600, 3600000}, {0, 0}};
	struct store_options o = {.tiers = tiers, .max_age_s = 400 * 86400};
	struct store *s = NULL;
	struct diag d = {};

	if (store_open(dir, &o, &d, &s) < 0) {
		printf("cannot open: %s\n", d.text);
		exit(4);
	}
	return s;
}

static int ingest(const char *dir, u32 from, u32 to)
{
	struct keeping m = {.s = open_or_die(dir), .at = from};
	pthread_t thread;
	struct diag d = {};

	pthread_create(&thread, NULL, keep_up, &m);
	for (u32 k = from; k < to; k++) {
		int r = write_batch(m.s, k, &d);

		if (r < 0) {
			printf("error %d %s\n", r, d.text);
			return 5;
		}
		say("ack %u\n", k);
		m.at = k;
	}
	m.stop = 1;
	pthread_join(thread, NULL);
	store_close(m.s);
	return 0;
}

static int fill(const char *dir, u32 from)
{
	struct store *s = open_or_die(dir);
	u32 k = from, end = MAX_BATCH;
	bool failed = false;

	for (; k < end; k++) {
		struct diag d = {};
		int r = write_batch(s, k, &d);

		if (r == 0) {
			say("ack %u\n", k);
			continue;
		}
		printf("error %d %s\n", r, d.text);
		fflush(stdout);
		if (failed || getchar() == EOF)
			return 6;
		failed = true;
		end = k-- + 20;
	}
	store_close(s);
	return 0;
}

/* ---- what is there ---- */

struct verdict {
	u8 *present; /* by batch */
	s64 pool, want;
	u64 lost;
	bool wrong;
};

static void judge(struct verdict *v, const char *leaf, s64 value)
{
	u32 k;

	if (sscanf(leaf, "batch_%u", &k) == 1 && k < MAX_BATCH) {
		v->wrong |= v->present[k] || value != (s64)k + 1;
		v->present[k] = 1;
		v->want += pool_sum(k);
	} else if (!strncmp(leaf, "pool_", 5)) {
		v->pool += value;
	} else {
		v->lost++;
		v->wrong |= leaf[0] != '[';
	}
}

static void print_present(const struct verdict *v)
{
	const char *separator = "present ";

	for (u32 k = 0; k < MAX_BATCH; k++) {
		u32 from = k;

		while (k < MAX_BATCH && v->present[k])
			k++;
		if (k > from) {
			printf("%s%u-%u", separator, from, k - 1);
			separator = ",";
		}
	}
	printf("\n");
}

static int verify(const char *dir)
{
	_cleanup_free_ u8 *present = calloc(MAX_BATCH + 1, 1);
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_str_ struct str scratch = {};
	struct verdict v = {.present = present};
	struct query q = {.to_ms = 1ULL << 60};
	struct store *s = open_or_die(dir);
	struct store_stats st;
	struct diag d = {};

	if (query_profile(s, &q, 0, &p, &d) < 0) {
		printf("cannot read: %s\n", d.text);
		return 7;
	}
	for (size_t i = 0; i < p->n_samples; i++) {
		const struct profile_sample *e = profile_sample(p, i);
		u32 leaf = p->stack_frames.data[p->stacks.data[e->stack].first];

		judge(&v, profile_frame_name(p, leaf, &scratch), e->value[0]);
	}
	if (s->ops->stats(s, &st, &d) < 0)
		return 8;
	print_present(&v);
	printf("damaged %llu lost %llu rows %llu bytes %llu\n", st.damaged, v.lost, st.rows,
	       st.bytes);
	store_close(s);
	/* What is there is whole, unless it was said that something is not. */
	return v.wrong || (!v.lost && !st.damaged && v.pool != v.want) || (v.lost && !st.damaged) ||
			       (v.pool > v.want && !st.damaged)
		       ? 1
		       : 0;
}

int main(int argc, char **argv)
{
	signal(SIGXFSZ, SIG_IGN);
	if (argc == 5 && !strcmp(argv[1], "ingest"))
		return ingest(argv[2], (u32)strtoul(argv[3], NULL, 10),
			      (u32)strtoul(argv[4], NULL, 10));
	if (argc == 4 && !strcmp(argv[1], "fill"))
		return fill(argv[2], (u32)strtoul(argv[3], NULL, 10));
	if (argc == 3 && !strcmp(argv[1], "verify"))
		return verify(argv[2]);
	fprintf(stderr, "usage: store_tool ingest DIR FROM TO | fill DIR FROM | verify DIR\n");
	return 2;
}
