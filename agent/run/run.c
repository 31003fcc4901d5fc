/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/run/run.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/run/about.h"
#include "agent/run/correlate.h"
#include "agent/run/pace.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "base/thread.h"
#include "base/vocab.h"
#include "proc/proc.h"

#define POLL_MS 100
/* Symbolization deadline at shutdown. */
#define NAMING_AT_END_NS 2500000000ULL
#define TIDY_NS 250000000ULL
/* The first profile is due early. */
#define FIRST_PERIOD_MS 1000
/* Within this time the samples of a period are almost always symbolized and reported. */
#define NAMING_MS 5000

/* Who holds the memory of the heap; the rest is libbpf's and that of small parts. */
enum owner { OWNER_NAMES, OWNER_SOURCES, OWNER_KERNEL, OWNER_PROCESSES, OWNER_BATCHES, OWNERS };

struct run {
	struct run_options options;
	pthread_t worker;
	bool started;
	u64 started_ms; /* since the epoch */
	u64 next_ns, interval_end_ns, tidy_ns;
	bool paused;
	struct pace pace;
	/* The last batch of the stopped pipeline, not handed over yet, and its symbolizer. */
	struct pipeline_batch *last; /* owned */
	struct symbolizer *last_symbolizer;
	bool changing;
	u64 counted_before[COUNTER_N]; /* by previous pipelines */
	u64 lost_before;	       /* of previous pipelines */

	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	struct pipeline_batch *todo, *done; /* owned; at most one of them is set */
	struct symbolizer *symbolizer;	    /* of todo */
	bool ending;
	struct pipeline_stats stats;
	struct sampler_source sources[SAMPLER_MAX_SOURCES]; /* the sources of stats.sampler */
	u64 samples, user_samples, truncated, attributes_left_out, batches, failed;
	u64 stops[STOP_N];
	u64 naming_ns;
	/* probabilistic sampling; the current interval counts */
	u64 intervals, intervals_sampled;
	u64 gave_back_ns;	      /* the symbolizing thread's */
	u64 shed_names, shed_sources; /* times that memory was short */
	u64 left_out;		      /* times that the names of a file were omitted */
	u64 owned[OWNERS];	      /* bytes */
};

/* ---- memory ---- */

/*
 * Tables are rebuilt when needed. They are dropped when idle for this long, sooner if memory is
 * short.
 */
#define IDLE_NS 60000000000ULL
#define HURRY_NS 200000000ULL
#define GIVE_BACK_NS 30000000000ULL
#define BATCHES_OF_START 2
/* Percentage of the limit at which memory is freed; the rest is for growth until the next check. */
#define SHORT_PERCENT 60

static bool is_short(const struct run *r)
{
	return budget_is_over(r->options.budget, SHORT_PERCENT);
}

/* Frees names after a profile; called by the symbolizing thread. */
static void keep_names_small(struct run *r, struct symbolizer *s)
{
	bool shed = false;

	if (!is_short(r))
		return;
	(void)malloc_trim(0);
	while (is_short(r) && symbolizer_shed(s)) {
		shed = true;
		(void)malloc_trim(0);
	}
	pthread_mutex_lock(&r->lock);
	r->shed_names += shed;
	pthread_mutex_unlock(&r->lock);
}

/*
 * After the start, which loads programs and reads all files, a third of what is resident is used no
 * more; later a period may have been larger than the others. Called by the symbolizing thread.
 */
static void give_back(struct run *r)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (r->batches < BATCHES_OF_START || now < r->gave_back_ns + GIVE_BACK_NS)
		return;
	memory_give_back();
	r->gave_back_ns = clock_ns(CLOCK_MONOTONIC);
	log_debug("gave unused memory back in %.1f ms", (double)(r->gave_back_ns - now) / 1e6);
}

/* Frees tables; called by the reading thread. */
static void keep_tables_small(struct run *r)
{
	bool hurry = is_short(r);
	u32 n = pipeline_trim(r->options.pipeline, hurry ? HURRY_NS : IDLE_NS, hurry);

	if (n)
		(void)malloc_trim(0);
	pthread_mutex_lock(&r->lock);
	r->shed_sources += hurry ? n : 0;
	pthread_mutex_unlock(&r->lock);
}

/* ---- the symbolizing thread ---- */

/* Adds the agent's labels. On failure the profile lacks them. */
static void add_agent_labels(struct run *r, const struct pipeline_batch *b, struct profile *p)
{
	struct pipeline_stats stats;
	struct about a = {.started_ms = r->started_ms,
			  .sources = b->sources,
			  .n_sources = b->n_sources,
			  .memory = budget_used(r->options.budget),
			  .identities = r->options.identities,
			  .stats = &stats};

	pthread_mutex_lock(&r->lock);
	stats = r->stats;
	a.samples = r->samples;
	a.truncated = r->truncated;
	if (r->failed)
		a.error = "periods were lost for lack of memory";
	pthread_mutex_unlock(&r->lock);
	(void)about_add(&a, p);
}

/* Passes the profile of one source on, which becomes the receiver's. */
static void give_profile(struct run *r, const struct pipeline_batch *b, u32 source,
			 struct profile *p)
{
	add_agent_labels(r, b, p);
	/* The protocol counts samples on a CPU: only the first source reports. */
	if (source == 0)
		correlate(b, p, pipeline_contexts(r->options.pipeline));
	r->options.take(r->options.arg, p);
}

static void name_batch(struct run *r, const struct pipeline_batch *b)
{
	struct profile *profiles[SAMPLER_MAX_SOURCES] = {};
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	struct symbolizer_stats before, after;
	int e;

	symbolizer_stats(r->symbolizer, &before);
	e = symbolizer_profiles(r->symbolizer, b, 0, profiles);
	symbolizer_stats(r->symbolizer, &after);
	for (u32 i = 0; i < SAMPLER_MAX_SOURCES; i++)
		if (profiles[i])
			give_profile(r, b, i, profiles[i]);
	if (e < 0)
		log_warn("%llu samples are lost: %s", pipeline_sum(b).samples, strerror(-e));
	keep_names_small(r, r->symbolizer);
	pthread_mutex_lock(&r->lock);
	r->batches++;
	r->failed += e < 0;
	r->left_out += after.left_out - before.left_out;
	r->owned[OWNER_NAMES] = after.names_bytes;
	r->owned[OWNER_SOURCES] = after.sources_bytes;
	r->owned[OWNER_KERNEL] = after.kernel_bytes;
	r->naming_ns += clock_ns(CLOCK_MONOTONIC) - begin;
	pthread_mutex_unlock(&r->lock);
	give_back(r);
}

static void *symbolize_batches(void *arg)
{
	struct run *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->ending || r->todo) {
		struct pipeline_batch *b = r->todo;

		if (!b) {
			pthread_cond_wait(&r->wake, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		name_batch(r, b);
		pthread_mutex_lock(&r->lock);
		r->todo = NULL;
		r->done = b;
		pthread_cond_broadcast(&r->wake);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ---- the recording thread ---- */

static bool process_seen(void *arg, const struct procman_process *p, struct runtimes *r)
{
	return identities_see(arg, p, r);
}

static void process_said(void *arg, const struct procman_process *p,
			 const struct context_label *labels, u32 n)
{
	identities_say(arg, p, labels, n);
}

static int resource_of(void *arg, const struct pipeline_entry *e, struct profile *p, u32 *ret)
{
	return identities_resource(arg, e->key.image, e->key.comm, p, ret);
}

void run_connect_pipeline(struct identities *i, struct pipeline_options *p)
{
	p->process_seen = process_seen;
	p->process_said = process_said;
	p->arg = i;
}

void run_connect_symbolizer(struct identities *i, struct symbolizer_options *s)
{
	s->resource = resource_of;
	s->arg = i;
}

static int begin_correlation(const struct run *r, struct pipeline *p)
{
	char host_id[64];

	identities_host(r->options.identities, "host.id", host_id, sizeof(host_id));
	return contexts_correlate(pipeline_contexts(p), r->options.period_ms + NAMING_MS, host_id);
}

int run_create(const struct run_options *o, struct run **ret)
{
	struct run *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->options = *o;
	pace_init(&r->pace);
	r->started_ms = clock_epoch_ms();
	thread_sync_init(&r->lock, &r->wake);
	e = thread_start(&r->worker, "namer", symbolize_batches, r);
	r->started = e == 0;
	if (e == 0)
		e = begin_correlation(r, o->pipeline);
	if (e < 0) {
		run_destroy(r);
		return e;
	}
	*ret = r;
	return 0;
}

/* Under the lock. Whether the symbolizing thread is idle; frees the batch that it finished. */
static bool is_idle(struct run *r)
{
	pipeline_give_back(r->options.pipeline, r->done);
	r->done = NULL;
	return !r->todo;
}

/* Under the lock. Copies the pipeline's counters for /metrics, until the next batch. */
static void take_stats(struct run *r)
{
	struct pipeline *p = r->options.pipeline;

	pipeline_stats(p, &r->stats);
	r->stats.counts.lost += r->lost_before;
	for (u32 i = 0; i < COUNTER_N; i++)
		r->stats.sampler.all.counters[i] += r->counted_before[i];
	for (u32 i = 0; i < r->stats.sampler.n_sources; i++)
		r->sources[i] = *pipeline_source(p, i);
}

static void hand_over(struct run *r, struct pipeline_batch *b, struct symbolizer *s)
{
	struct pipeline_counts counts;

	if (!b)
		return;
	counts = pipeline_sum(b);
	r->samples += counts.samples;
	r->user_samples += counts.user_samples;
	r->truncated += counts.truncated;
	r->attributes_left_out += counts.attributes_left_out;
	for (u32 i = 0; i < STOP_N; i++)
		r->stops[i] += counts.stops[i];
	take_stats(r);
	r->owned[OWNER_PROCESSES] = r->stats.procman.bytes;
	/* This one, and the next one that is recorded meanwhile. */
	r->owned[OWNER_BATCHES] = 2 * pipeline_batch_bytes(b);
	budget_set_outside(r->options.budget,
			   (s64)r->stats.sampler.map_bytes - (s64)r->stats.sampler.mapped_bytes);
	r->symbolizer = s;
	r->todo = b;
	pthread_cond_broadcast(&r->wake);
	identities_sweep(r->options.identities);
}

/* Under the lock. Hands over the last batch of the old pipeline; true: there was one. */
static bool hand_over_last(struct run *r)
{
	struct pipeline_batch *b = r->last;

	r->last = NULL;
	hand_over(r, b, r->last_symbolizer);
	return b;
}

static int random_percent(void)
{
	u32 v;

	return getrandom(&v, sizeof(v), 0) == sizeof(v) ? (int)(v % 100) : 0;
}

/* The rate that a new pipeline was asked for. Only that of a clock can change; else 0. */
static u64 asked_hz(const struct run *r)
{
	const struct sampler_source *first = pipeline_source(r->options.pipeline, 0);

	return first && first->type == SAMPLE_TYPE_CPU ? first->hz : 0;
}

static void begin_pace(struct run *r, u64 hz)
{
	r->pace.share = r->options.cpu_share;
	pace_begin(&r->pace, hz);
}

static void look_at_pace(struct run *r, u64 now)
{
	struct pipeline_stats stats;
	u64 cpu_ns;

	if (!pace_is_due(&r->pace, now))
		return;
	pipeline_stats(r->options.pipeline, &stats);
	cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + stats.tables.parser_cpu_ns;
	pthread_mutex_lock(&r->lock);
	pace_look(&r->pace, now, cpu_ns, stats.sampler.all.bpf_ns, MAX(stats.sampler.cpus, 1U));
	pthread_mutex_unlock(&r->lock);
}

/* Between two batches: a profile has one rate, by which receivers multiply its samples. */
static void keep_pace(struct run *r)
{
	if (r->pace.asked_hz && r->pace.hz != pipeline_source(r->options.pipeline, 0)->hz)
		r->pace.hz = pipeline_set_hz(r->options.pipeline, r->pace.hz);
}

/* Decides at random whether the interval that begins now is sampled. */
static void choose_interval(struct run *r, u64 now)
{
	bool pause;

	if (!r->options.probabilistic_percent || now < r->interval_end_ns)
		return;
	r->interval_end_ns = now + r->options.interval_s * 1000000000ULL;
	pause = random_percent() >= (int)r->options.probabilistic_percent;
	pthread_mutex_lock(&r->lock);
	r->intervals++;
	r->intervals_sampled += !pause;
	pthread_mutex_unlock(&r->lock);
	if (pause != r->paused)
		pipeline_pause(r->options.pipeline, pause);
	r->paused = pause;
}

static void end_period(struct run *r, u64 now)
{
	pthread_mutex_lock(&r->lock);
	if (is_idle(r) && !hand_over_last(r)) {
		keep_pace(r);
		hand_over(r, pipeline_take(r->options.pipeline), r->options.symbolizer);
		r->next_ns = now + r->options.period_ms * 1000000ULL;
	}
	pthread_mutex_unlock(&r->lock);
}

/* Under the lock. Waits until all batches are symbolized; after `until` the symbolizer hurries. */
static void wait_idle(struct run *r, u64 until)
{
	while (!is_idle(r)) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		if (now < until) {
			(void)thread_wait(&r->wake, &r->lock, until - now);
			continue;
		}
		if (r->symbolizer)
			symbolizer_hurry(r->symbolizer);
		pthread_cond_wait(&r->wake, &r->lock);
	}
}

/* Hands over the rest, and waits until it has been exported. */
static void export_rest(struct run *r)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + NAMING_AT_END_NS;

	pthread_mutex_lock(&r->lock);
	wait_idle(r, until);
	if (hand_over_last(r))
		wait_idle(r, until);
	hand_over(r, pipeline_take(r->options.pipeline), r->options.symbolizer);
	wait_idle(r, until);
	pthread_mutex_unlock(&r->lock);
}

/*
 * Switches to a new pipeline: drops what it has counted so far, and stops the old one at that
 * moment, so that each moment is counted once. The old pipeline's batch is symbolized first.
 */
static void change_pipeline(struct run *r, const struct run_change *c)
{
	struct pipeline *old = r->options.pipeline;
	struct pipeline_stats stats;

	pipeline_give_back(c->pipeline, pipeline_take(c->pipeline));
	pipeline_stop(old);
	pipeline_adopt(c->pipeline);
	if (begin_correlation(r, c->pipeline) < 0)
		log_warn("out of memory: processes are not told which of their traces are sampled");
	pthread_mutex_lock(&r->lock);
	r->last = pipeline_take(old);
	r->last_symbolizer = r->options.symbolizer;
	r->changing = true;
	pipeline_stats(old, &stats);
	r->lost_before += stats.counts.lost;
	for (u32 i = 0; i < COUNTER_N; i++)
		r->counted_before[i] += stats.sampler.all.counters[i];
	r->options.pipeline = c->pipeline;
	r->options.symbolizer = c->symbolizer;
	pthread_mutex_unlock(&r->lock);
	if (r->paused)
		pipeline_pause(c->pipeline, true);
}

void run_change(struct run *r, const struct run_change *c)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);

	if (c->pipeline)
		change_pipeline(r, c);
	r->options.period_ms = c->period_ms;
	if (r->options.probabilistic_percent != c->probabilistic_percent ||
	    r->options.interval_s != c->interval_s)
		r->interval_end_ns = now;
	r->options.probabilistic_percent = c->probabilistic_percent;
	r->options.interval_s = c->interval_s;
	if (c->pipeline || r->options.cpu_share != c->cpu_share) {
		r->options.cpu_share = c->cpu_share;
		/* The pipeline that goes on may have a lower rate, for the budget before. */
		begin_pace(r, c->pipeline ? asked_hz(r) : r->pace.asked_hz);
	}
	budget_set_limit(r->options.budget, c->memory_limit_bytes);
	if (!c->probabilistic_percent && r->paused) {
		pipeline_pause(r->options.pipeline, false);
		r->paused = false;
	}
	r->next_ns = MIN(r->next_ns, now + r->options.period_ms * 1000000ULL);
}

bool run_has_changed(struct run *r)
{
	bool done;

	pthread_mutex_lock(&r->lock);
	done = r->changing && !r->last && is_idle(r);
	r->changing &= !done;
	pthread_mutex_unlock(&r->lock);
	return done;
}

int run_loop(struct run *r, bool (*ended)(void), struct diag *reterr_diag)
{
	int e = pipeline_start(r->options.pipeline, reterr_diag);

	if (e < 0)
		return e;
	begin_pace(r, asked_hz(r));
	r->next_ns = clock_ns(CLOCK_MONOTONIC) + FIRST_PERIOD_MS * 1000000ULL;
	while (e == 0 && !ended() && !(r->options.is_over && r->options.is_over(r->options.arg))) {
		u64 now = clock_ns(CLOCK_MONOTONIC);

		choose_interval(r, now);
		look_at_pace(r, now);
		if (now >= r->next_ns)
			end_period(r, now);
		if (now >= r->tidy_ns) {
			keep_tables_small(r);
			identities_follow(r->options.identities);
			r->tidy_ns = now + TIDY_NS;
		}
		e = pipeline_poll(r->options.pipeline, POLL_MS);
		if (r->options.each)
			r->options.each(r->options.arg);
	}
	pipeline_stop(r->options.pipeline);
	export_rest(r);
	return e < 0 ? diag_set(reterr_diag, e, "reading events failed: %s", strerror(-e)) : 0;
}

void run_destroy(struct run *r)
{
	if (!r)
		return;
	if (r->started) {
		pthread_mutex_lock(&r->lock);
		r->ending = true;
		pthread_cond_broadcast(&r->wake);
		pthread_mutex_unlock(&r->lock);
		pthread_join(r->worker, NULL);
	}
	pipeline_give_back(r->options.pipeline, r->last);
	pipeline_give_back(r->options.pipeline, r->done);
	pace_deinit(&r->pace);
	pthread_cond_destroy(&r->wake);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- /metrics ---- */

#define PREFIX "culprit_agent_"
#define METRIC(name, help, value) metrics_single(out, PREFIX name, help, (double)(value))
/* All counters of a module. */
#define STATS(module) metrics_stats(out, PREFIX #module, module##_stat_fields, &r->stats.module)

static double seconds_of(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static void metrics_of_stops(struct str *out, const u64 *stops)
{
	static const char name[] = PREFIX "truncated_total";

	metrics_family(out, name, "User stacks not walked to their end.");
	for (u32 i = STOP_COMPLETE + 1; i < STOP_N; i++)
		metrics_sample(out, name, METRICS_LABELS({"reason", vocab_stop(i)->name}),
			       (double)stops[i]);
}

/*
 * Writes each counter of each source. The help of the family is one text that explains all
 * counters.
 */
static void metrics_of_bpf(struct str *out, const struct sampler_stats *stats,
			   const struct sampler_source *sources)
{
	static const char name[] = PREFIX "bpf_total";
	_cleanup_str_ struct str help = {};

	str_puts(&help, "Counters of the BPF programs");
	for (u32 c = 0; c < COUNTER_N; c++)
		str_printf(&help, "; %s: %s", vocab_counter(c)->name, vocab_counter(c)->help);
	metrics_family(out, name, str_get(&help));
	for (u32 i = 0; i < stats->n_sources; i++)
		for (u32 c = 0; c < COUNTER_N; c++)
			metrics_sample(out, name,
				       METRICS_LABELS({"counter", vocab_counter(c)->name},
						      {"source", sources[i].event}),
				       (double)stats->sources[i].counters[c]);
}

/* Under the lock. */
static void metrics_of_owners(struct run *r, struct str *out)
{
	static const char name[] = PREFIX "memory_owned_bytes";
	static const char *const owners[OWNERS] = {
		[OWNER_NAMES] = "names",	 [OWNER_SOURCES] = "sources of names",
		[OWNER_KERNEL] = "kernel names", [OWNER_PROCESSES] = "processes",
		[OWNER_BATCHES] = "batches",
	};
	const struct memory_heap heap = memory_heap();
	u64 rest = heap.used_bytes;

	metrics_family(
		out, name,
		"Memory by who holds it: the parts of the heap, what malloc() keeps of freed "
		"blocks whether or not it is resident, the parser's process, BPF maps.");
	for (u32 i = 0; i < OWNERS; i++) {
		metrics_sample(out, name, METRICS_LABELS({"owner", owners[i]}),
			       (double)r->owned[i]);
		rest -= MIN(rest, r->owned[i]);
	}
	metrics_sample(out, name, METRICS_LABELS({"owner", "other heap"}), (double)rest);
	metrics_sample(out, name, METRICS_LABELS({"owner", "freed heap"}), (double)heap.free_bytes);
	metrics_sample(out, name, METRICS_LABELS({"owner", "parser"}),
		       (double)r->stats.tables.parser_bytes);
	metrics_sample(out, name, METRICS_LABELS({"owner", "BPF maps"}),
		       (double)(r->stats.sampler.map_bytes + r->stats.tables.chunk_bytes));
}

void run_metrics(struct run *r, struct str *out)
{
	struct proc_status status = {};
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	(void)proc_status_read((u32)getpid(), &status);
	pthread_mutex_lock(&r->lock);
	METRIC("samples_total", "Samples recorded.", r->samples);
	METRIC("samples_lost_total", "Samples dropped.", r->stats.counts.lost);
	METRIC("user_stacks_total", "Samples with a user stack.", r->user_samples);
	metrics_of_stops(out, r->stops);
	metrics_of_bpf(out, &r->stats.sampler, r->sources);
	METRIC("samples_attributes_left_out_total",
	       "Samples that lack some of their thread's attributes.", r->attributes_left_out);
	METRIC("profiles_total", "Periods named.", r->batches);
	METRIC("profiles_failed_total", "Periods lost for lack of memory.", r->failed);
	METRIC("intervals_total", "Intervals of probabilistic sampling.", r->intervals);
	METRIC("intervals_sampled_total", "Of these, sampled.", r->intervals_sampled);
	if (r->pace.share > 0) {
		METRIC("cpu_budget_ratio", "Budget of CPU time, as a share of the machine.",
		       r->pace.share);
		METRIC("cpu_spent_ratio",
		       "CPU time spent, as a share of the machine, over about half a minute.",
		       r->pace.spent);
		METRIC("rate_hertz", "Samples a second on each CPU, as the budget allows.",
		       r->pace.hz);
		METRIC("rate_changes_total", "Times that the budget has changed the rate.",
		       r->pace.changes);
	}
	METRIC("naming_seconds_total", "Time spent on names.", r->naming_ns / 1e9);
	METRIC("processes", "Processes known.", r->stats.procman.processes);
	METRIC("bpf_map_bytes", "Memory of BPF maps.",
	       r->stats.sampler.map_bytes + r->stats.tables.chunk_bytes);
	metrics_of_owners(r, out);
	METRIC("memory_fixed_bytes", "Memory that never shrinks: rings, maps, buffers of each CPU.",
	       r->stats.sampler.fixed_bytes);
	METRIC("stack_copies_lost_total", "Copies of stacks dropped before their end came.",
	       r->stats.sampler.copies_lost);
	METRIC("memory_short_names_total",
	       "Times that names were dropped for lack of memory; they are looked up again.",
	       r->shed_names);
	METRIC("memory_short_tables_total",
	       "Files whose unwind information was dropped for lack of memory.", r->shed_sources);
	METRIC("memory_short_unnamed_total",
	       "Times that the names of a file did not fit in memory: its addresses have no names.",
	       r->left_out);
	METRIC("memory_left_out_total",
	       "Times that unwind tables did not fit in memory: stacks end there.",
	       r->stats.tables.no_memory);
	METRIC("ring_stall_seconds", "Longest time the ring was not read.",
	       r->stats.stall_ns / 1e9);
	METRIC("walks_given_up_total",
	       "Walks that ended at a missing page of unwind rows because too many were waiting.",
	       r->stats.given_up);
	STATS(procman);
	STATS(tables);
	STATS(runtimes);
	STATS(contexts);
	STATS(tasks);
	if (r->stats.resident.one_of)
		STATS(resident);
	if (r->stats.heap.looks)
		STATS(heap);
	if (r->stats.alloc.probes.emulated_ns) {
		metrics_stats(out, PREFIX "alloc", alloc_stat_fields, &r->stats.alloc.probes);
		metrics_stats(out, PREFIX "alloc_ledger", pipeline_alloc_stat_fields,
			      &r->stats.alloc);
	}
	METRIC("cpu_seconds_total", "CPU time of the agent, with that of its parser.",
	       seconds_of(u.ru_utime) + seconds_of(u.ru_stime) +
		       (double)r->stats.tables.parser_cpu_ns / 1e9);
	METRIC("parser_cpu_seconds_total", "CPU time of the process that parses files.",
	       (double)r->stats.tables.parser_cpu_ns / 1e9);
	pthread_mutex_unlock(&r->lock);
	METRIC("identity_labels_left_out_total", "Labels of processes omitted for lack of memory.",
	       identities_left_out(r->options.identities));
	METRIC("memory_limit_bytes", "What --memory-limit allows.",
	       budget_limit(r->options.budget));
	METRIC("memory_bytes", "Memory in use: resident, of the parser, and BPF maps.",
	       budget_used(r->options.budget));
	METRIC("resident_max_bytes", "Largest resident memory so far.", status.peak_bytes);
}
