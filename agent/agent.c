/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The always-on agent: a recording, and agent/run, which makes a profile of each period and passes
 * it to the exporters; agent/client, which asks the destinations for tasks, and agent/capture,
 * which does them. Its options become the options and limits of these parts here.
 */
#include "agent/agent.h"

#include <errno.h>
#include <linux/capability.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/internal.h"
#include "agent/probe/probe.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/vocab.h"

#define DRAIN_MS 5000
#define PERIOD_MS 5000
#define MEMORY_LIMIT_MB 384
#define INTERVAL_S 60
/* Above this share of the memory limit a profile is dropped unless the export queue is empty. */
#define SHORT_PERCENT 90
#define TIGHT_BYTES (256ULL << 20)

u64 agent_capabilities(bool attach_java)
{
	static const u8 needed[] = {
		CAP_BPF,	/* programs and maps */
		CAP_PERFMON,	/* perf events; BPF programs that read the kernel */
		CAP_SYS_PTRACE, /* memory, mappings and namespaces of other users' processes */
		CAP_CHECKPOINT_RESTORE, /* /proc/PID/map_files: files that are deleted */
		CAP_DAC_READ_SEARCH,	/* files of other users */
		CAP_DAC_OVERRIDE,     /* sockets of other users that ask for traces (context.md) */
		CAP_SYSLOG,	      /* addresses in /proc/kallsyms */
		CAP_SYS_RESOURCE,     /* more open files; locked memory before Linux 5.11 */
		CAP_SYS_NICE,	      /* the reader thread goes first */
		CAP_NET_BIND_SERVICE, /* --metrics at a port below 1024 */
	};
	u64 all = 0;

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		all |= 1ULL << needed[i];
	/* SIGQUIT to JVMs of other users, which starts their attach listener. */
	if (attach_java)
		all |= 1ULL << CAP_KILL;
	if (probe_wants_admin())
		all |= 1ULL << CAP_SYS_ADMIN;
	return all;
}

u64 agent_memory_limit(const struct agent_options *o)
{
	return (o->what.memory_limit_mb ? o->what.memory_limit_mb : MEMORY_LIMIT_MB) << 20;
}

/* Tells servers who asks them for tasks: the host as the profiles name it. */
static void name_asker(struct agent *a)
{
	char host[CONTROL_TEXT_BYTES], host_id[CONTROL_TEXT_BYTES];

	identities_host(a->identities, "host.name", host, sizeof(host));
	identities_host(a->identities, "host.id", host_id, sizeof(host_id));
	control_client_begin(a->asks, a->capture, a->watch, a->measures, host, host_id);
}

int agent_set_labels(struct agent *a, const struct agent_options *o, struct diag *reterr_diag)
{
	const char *labels = o->labels ? o->labels : "";
	_cleanup_str_ struct str all = {};
	int r;

	/* Receivers extrapolate by multiplying with 100 / PERCENT. */
	if (o->probabilistic_threshold)
		str_printf(&all, "culprit.probabilistic.percent=%llu,", o->probabilistic_threshold);
	str_puts(&all, labels);
	r = all.failed ? -ENOMEM : identities_set_labels(a->identities, str_get(&all));
	if (r == -EINVAL || r == -E2BIG)
		return diag_set(reterr_diag, -EINVAL, "--labels takes NAME=VALUE,..., not '%s'",
				labels);
	if (r == 0)
		r = identities_set_root(a->identities, o->host_root);
	if (r == 0 && a->capture)
		name_asker(a);
	return r < 0 ? diag_set(reterr_diag, r, "out of memory") : 0;
}

/* Waits beside the CPU time, and who ended them, where the kernel tells them. */
static void choose_default_events(const struct agent_options *o, struct recording_options *what)
{
	int r = o->no_off_cpu ? -ENOENT : probe_waits();

	if (!o->no_off_cpu && r < 0)
		log_info("waits are not sampled: this kernel does not tell when a thread runs "
			 "again (%s)",
			 strerror(-r));
	if (r < 0)
		return;
	what->events = SAMPLER_DEFAULT_EVENT "," SAMPLER_WAITS;
	what->wakers = r == 0;
}

void agent_tune_malloc(void)
{
	/*
	 * Large blocks, such as ELF sections, are mapped, so that free() returns them to the
	 * system.
	 */
	mallopt(M_MMAP_THRESHOLD, 256 << 10);
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	/* malloc() arenas keep their memory: two threads that allocate share them. */
	mallopt(M_ARENA_MAX, 2);
}

struct recording_limits agent_recording_limits(u64 limit, struct budget *budget)
{
	bool tight = limit < TIGHT_BYTES;

	return (struct recording_limits){
		.clock_hz = AGENT_DEFAULT_HZ,
		.tables_bytes = limit / 4,
		/* For one file and for each of its debug files; several may be open at once. */
		.max_section = limit / (tight ? 12 : 4),
		.tight_memory = tight,
		.budget = budget,
		.no_task_ids = true,
	};
}

/*
 * States of memory and allocations are recorded beside what else is. *ret_events is what
 * what->events points to.
 */
static int add_memory(struct recording_options *what, char **ret_events)
{
	const char *others = what->events		   ? what->events
			     : what->off_cpu || what->wall ? NULL
							   : SAMPLER_DEFAULT_EVENT;

	if ((!what->resident && !what->heap && !what->alloc) || !others)
		return 0; /* none, or refused */
	if (asprintf(ret_events, "%s%s%s%s", others, what->resident ? "," SAMPLER_RESIDENT : "",
		     what->heap ? "," SAMPLER_HEAP : "",
		     what->alloc ? "," SAMPLER_ALLOC : "") < 0) {
		*ret_events = NULL;
		return -ENOMEM;
	}
	what->events = *ret_events;
	what->resident = what->heap = what->alloc = false;
	return 0;
}

static void send_profile(void *arg, struct profile *p)
{
	struct agent *a = arg;

	(void)exporters_send(a->exporters, p, budget_is_over(&a->budget, SHORT_PERCENT));
}

/* Once: a reload that turns it off leaves the thread with nothing to do. */
static int start_flights(struct agent *a, const struct agent_options *o)
{
	const struct flights_options fo = {.parsers = o->what.parsers,
					   .identities = a->identities,
					   .period_ms = agent_run_change(o).period_ms,
					   .take = send_profile,
					   .arg = a};
	struct flights *f;
	int r = a->flights ? 0 : flights_create(&fo, &f);

	if (r == 0 && !a->flights)
		__atomic_store_n(&a->flights, f, __ATOMIC_RELEASE);
	return r;
}

int agent_open_recording(struct agent *a, const struct agent_options *o, struct diag *reterr_diag,
			 struct recording **ret)
{
	struct recording_limits l = agent_recording_limits(agent_memory_limit(o), &a->budget);
	_cleanup_free_ char *events = NULL;
	struct recording_options what = o->what;
	int r;

	l.leave_files = o->no_symbols;
	what.keep_times = true;
	what.last_s = 0;
	what.attach_java = false;
	if (!what.events && !what.off_cpu && !what.wall && !what.period)
		choose_default_events(o, &what);
	r = add_memory(&what, &events);
	if (r == 0 && o->what.attach_java)
		r = start_flights(a, o);
	if (r < 0)
		return r;
	l.flights = o->what.attach_java ? a->flights : NULL;
	return recording_open(&what, &l, a->identities, reterr_diag, ret);
}

struct run_change agent_run_change(const struct agent_options *o)
{
	return (struct run_change){
		.period_ms = o->period_s > 0 ? (u32)(o->period_s * 1000) : PERIOD_MS,
		.probabilistic_percent = (u32)o->probabilistic_threshold,
		.interval_s =
			o->probabilistic_interval_s ? (u32)o->probabilistic_interval_s : INTERVAL_S,
		.cpu_share = o->cpu_budget_percent / 100,
		.memory_limit_bytes = agent_memory_limit(o),
	};
}

/* Nothing of it changes at a reload. */
static int start_capture(struct agent *a, struct diag *reterr_diag)
{
	const struct agent_options *o = &a->options;
	u64 limit = agent_memory_limit(o);
	struct capture_options c = {
		.parsers = o->what.parsers,
		.identities = a->identities,
		.budget = &a->budget,
		.max_bytes = MIN(limit / 6, (u64)CAPTURE_DEFAULT_BYTES),
		.tables_bytes = limit / 6,
		.max_section = limit / 6,
		.budget_percent = o->what.budget,
		.no_inline = o->what.no_inline,
		.no_symbols = o->no_symbols,
		.cache_dir = o->what.cache_dir,
		.debuginfod_urls = o->what.debuginfod_urls,
		.take = send_profile,
		.arg = a,
	};
	const struct measures_options mo = {
		.identities = a->identities, .take = send_profile, .arg = a};
	int r = watch_create(a->identities, reterr_diag, &a->watch);

	if (r == 0)
		r = measures_create(&mo, reterr_diag, &a->measures);
	if (r == 0)
		r = capture_create(&c, reterr_diag, &a->capture);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot wait for tasks: %s", strerror(-r));
	name_asker(a);
	return 0;
}

static int start_run(struct agent *a, struct diag *reterr_diag)
{
	struct run_change c = agent_run_change(&a->options);
	struct run_options ro = {
		.pipeline = a->recording->pipeline,
		.symbolizer = a->recording->symbolizer,
		.identities = a->identities,
		.period_ms = c.period_ms,
		.probabilistic_percent = c.probabilistic_percent,
		.interval_s = c.interval_s,
		.cpu_share = c.cpu_share,
		.budget = &a->budget,
		.take = send_profile,
		.each = agent_follow_reload,
		.arg = a,
	};
	int r = run_create(&ro, &a->run);

	return r < 0 ? diag_set(reterr_diag, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

static int start_threads(struct agent *a, struct diag *reterr_diag)
{
	int r;

	if (control_client_create(&a->asks) < 0)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = agent_open_exporters(a, &a->options, reterr_diag);
	if (r < 0)
		return r;
	if (identities_create(&a->identities) < 0)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	r = agent_set_labels(a, &a->options, reterr_diag);
	if (r == 0)
		r = agent_open_recording(a, &a->options, reterr_diag, &a->recording);
	if (r == 0)
		agent_tell_settings(a);
	if (r == 0)
		r = start_capture(a, reterr_diag);
	return r < 0 ? r : start_run(a, reterr_diag);
}

int agent_create(const struct agent_options *o, struct diag *reterr_diag, struct agent **ret)
{
	struct agent *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return diag_set(reterr_diag, -ENOMEM, "out of memory");
	a->options = a->own = *o;
	budget_init(&a->budget, agent_memory_limit(o));
	agent_tune_malloc();
	r = start_threads(a, reterr_diag);
	if (r < 0) {
		agent_destroy(a);
		return r;
	}
	*ret = a;
	return 0;
}

int agent_run(struct agent *a, const struct agent_control *control, struct diag *reterr_diag)
{
	int r;

	a->control = *control;
	r = run_loop(a->run, control->ended, reterr_diag);
	return r < 0 ? diag_set(reterr_diag, r, "%s", strerror(-r)) : 0;
}

void agent_destroy(struct agent *a)
{
	if (!a)
		return;
	agent_stop_reload(a);
	run_destroy(a->run);
	flights_finish(a->flights);
	/* From here on nobody calls capture, and then nobody sends. */
	control_client_end(a->asks);
	capture_destroy(a->capture);
	measures_destroy(a->measures);
	watch_destroy(a->watch);
	if (a->exporters)
		exporters_destroy(a->exporters, DRAIN_MS);
	control_client_destroy(a->asks);
	recording_destroy(a->old);
	recording_destroy(a->recording);
	flights_destroy(a->flights);
	identities_destroy(a->identities);
	budget_deinit(&a->budget);
	free(a);
}

/* ---- /metrics ---- */

static void export_metric(struct str *out, const struct export_stats *st, size_t n,
			  const char *name, const char *help, size_t offset)
{
	metrics_family(out, name, help);
	for (size_t i = 0; i < n; i++)
		metrics_sample(out, name, METRICS_LABELS({"url", st[i].url}),
			       (double)*(const u64 *)((const char *)&st[i] + offset));
}

/* The help of a family is one text: it explains all reasons. */
static void drop_metric(struct str *out, const struct export_stats *st, size_t n)
{
	static const char name[] = "culprit_export_dropped_total";
	_cleanup_str_ struct str help = {};

	str_puts(&help, "Profiles dropped, by reason");
	for (u32 k = 0; k < EXPORT_DROP_N; k++)
		str_printf(&help, "; %s: %s", vocab_export_drop(k)->name,
			   vocab_export_drop(k)->help);
	metrics_family(out, name, str_get(&help));
	for (size_t i = 0; i < n; i++)
		for (u32 k = 0; k < EXPORT_DROP_N; k++)
			metrics_sample(out, name,
				       METRICS_LABELS({"url", st[i].url},
						      {"reason", vocab_export_drop(k)->name}),
				       (double)st[i].dropped_by[k]);
}

static void flight_metrics(struct agent *a, struct str *out)
{
	struct flights *f = __atomic_load_n(&a->flights, __ATOMIC_ACQUIRE);
	struct flights_stats stats;

	if (!f)
		return;
	flights_get_stats(f, &stats);
	metrics_stats(out, "culprit_agent_flights", flights_stat_fields, &stats);
}

void agent_metrics(struct agent *a, struct str *out)
{
	struct export_stats st[AGENT_MAX_DESTINATIONS];
	size_t n = MIN(exporters_stats(a->exporters, st, ARRAY_SIZE(st)), ARRAY_SIZE(st));

	run_metrics(a->run, out);
	metrics_single(out, "culprit_agent_reloads_total", "Configuration reloads.",
		       (double)__atomic_load_n(&a->n_reloads, __ATOMIC_RELAXED));
	metrics_single(out, "culprit_agent_reloads_refused_total",
		       "Configuration reloads refused because of an error.",
		       (double)__atomic_load_n(&a->n_refused, __ATOMIC_RELAXED));
#define METRIC(name, member, help)                                                                 \
	export_metric(out, st, n, "culprit_export_" name, help,                                    \
		      offsetof(struct export_stats, member))
	METRIC("profiles_total", sent, "Profiles that the destination accepted.");
	METRIC("bytes_total", sent_bytes, "Bytes of the accepted profiles.");
	METRIC("retries_total", retried, "Failed attempts that were repeated.");
	METRIC("spooled_bytes", spooled_bytes, "Bytes that wait in the spool.");
	METRIC("dropped_profiles_total", dropped, "Profiles dropped.");
	METRIC("dropped_samples_total", dropped_samples, "Samples in the dropped profiles.");
#undef METRIC
	drop_metric(out, st, n);
	control_client_metrics(a->asks, out);
	capture_metrics(a->capture, out);
	flight_metrics(a, out);
}
