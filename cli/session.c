/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/probe/probe.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"

#define TEXT_OF(n) #n
#define TEXT(n) TEXT_OF(n)
#define HZ_DEFAULTS                                                                                \
	TEXT(SAMPLER_DEFAULT_HZ)                                                                   \
	" in record and top, " TEXT(AGENT_DEFAULT_HZ) " in agent and up,\n" TEXT(                  \
		SAMPLER_EVENTS_HZ) " for page faults and other events of the kernel"

#define A struct session_arguments
const struct option session_options[] = {
	OPTION_U64("frequency", 'F', "HZ", A, hz, 1, SAMPLER_MAX_HZ,
		   "samples per second on each CPU, at most " TEXT(
			   SAMPLER_MAX_HZ) "\n(default " HZ_DEFAULTS ")"),
	OPTION_STRING("event", 'e', "EVENT,...", A, events,
		      "events to sample: cpu-clock (default), page-faults, context-switches,\n"
		      "cycles, cache-misses, a tracepoint CATEGORY:NAME ... (culprit-record(1))"),
	OPTION_U64("count", 'c', "N", A, period, 1, 1ULL << 40,
		   "take a sample every N events, instead of at a frequency"),
	OPTION_STRING("pid", 'p', "PID,...", A, pids, "only these processes"),
	OPTION_STRING("comm", 0, "NAME,...", A, comms, "only processes with these names"),
	OPTION_STRING("cgroup", 0, "PATH,...", A, cgroups,
		      "only these cgroups (v2) and their descendants"),
	OPTION_STRING("uid", 0, "UID,...", A, uids,
		      "only processes of these users, by name or number"),
	OPTION_FLAG("kernel-only", 0, A, kernel_only, "record no user stacks"),
	OPTION_FLAG("user-only", 0, A, user_only, "record no kernel stacks"),
	OPTION_FLAG("no-inline", 0, A, no_inline, "leave out inlined functions"),
	OPTION_FLAG("runtime-frames", 0, A, runtime_frames,
		    "show the native frames of interpreters below the functions that they run"),
	OPTION_U64("memory-limit", 0, "MB", A, memory_limit_mb, 8, 4096,
		   "memory limit: in record and top of the unwind tables (default 256), in\n"
		   "agent and up of the whole agent (default 384)"),
	OPTION_FLAG("verbose", 'v', A, verbose, "log debug messages to standard error"),
	{},
};
#undef A

/* A comma-separated list, split in place. */
struct list {
	char *text; /* owned */
	vec(const char *) items;
};

static void list_deinit(struct list *l)
{
	free(l->text);
	vec_deinit(&l->items);
}
#define _cleanup_list_ __attribute__((cleanup(list_deinit)))

static int list_init(struct list *l, const char *text)
{
	char *save, *item;

	if (!text)
		return 0;
	l->text = strdup(text);
	if (!l->text)
		return -ENOMEM;
	for (item = strtok_r(l->text, ",", &save); item; item = strtok_r(NULL, ",", &save))
		if (vec_push(&l->items, item) < 0)
			return -ENOMEM;
	return 0;
}

static int parse_pids(const struct list *l, u32 *ret)
{
	for (size_t i = 0; i < l->items.n; i++) {
		char path[32];
		u64 pid;

		if (str_to_u64(l->items.data[i], 10, &pid) < 0 || !pid || pid > 0x7fffffff)
			return cli_error(2, "'%s' is not a process id", l->items.data[i]);
		snprintf(path, sizeof(path), "/proc/%llu", pid);
		if (access(path, F_OK) < 0)
			return cli_error(1, "there is no process %llu", pid);
		ret[i] = (u32)pid;
	}
	return 0;
}

static int parse_uids(const struct list *l, u32 *ret)
{
	for (size_t i = 0; i < l->items.n; i++) {
		const struct passwd *pw = getpwnam(l->items.data[i]);
		u64 uid;

		if (pw)
			uid = pw->pw_uid;
		else if (str_to_u64(l->items.data[i], 10, &uid) < 0 || uid > ~0u)
			return cli_error(2, "there is no user '%s'", l->items.data[i]);
		ret[i] = (u32)uid;
	}
	return 0;
}

/* procman keeps a file descriptor for each binary that it knows. */
static void raise_file_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

/* The symbol cache that runs share; "" when there is no place for it. */
static void cache_dir(char *ret, size_t n)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		snprintf(ret, n, "/var/cache/culprit/symbols");
	else if (xdg && xdg[0] == '/')
		snprintf(ret, n, "%s/culprit/symbols", xdg);
	else if (home && home[0] == '/')
		snprintf(ret, n, "%s/.cache/culprit/symbols", home);
	else
		ret[0] = '\0';
}

static int start_symbolizer(const struct session_arguments *a, struct identities *identities,
			    struct session *s)
{
	char dir[512];
	struct symbolizer_options so = {
		.inlines = !a->no_inline,
		.runtime_frames = a->runtime_frames,
		.leave_files = a->leave_files,
		.max_section = a->max_section,
		.budget = a->budget,
		.debuginfod_urls = getenv("DEBUGINFOD_URLS"),
	};
	int r;

	cache_dir(dir, sizeof(dir));
	so.cache_dir = dir[0] ? dir : NULL;
	if (identities)
		run_connect_symbolizer(identities, &so);
	r = symbolizer_create(&so, &s->symbolizer);
	return r < 0 ? cli_error(1, "cannot prepare symbols: %s", strerror(-r)) : 0;
}

static int choose_events(const struct list *names, const struct session_arguments *a,
			 struct sampler_event ret[SAMPLER_MAX_SOURCES])
{
	if (names->items.n > SAMPLER_MAX_SOURCES)
		return cli_error(2, "at most %d events at a time", SAMPLER_MAX_SOURCES);
	for (size_t i = 0; i < names->items.n; i++)
		ret[i] = (struct sampler_event){.name = names->items.data[i],
						.hz = a->hz,
						.clock_hz = a->clock_hz ? a->clock_hz
									: SAMPLER_DEFAULT_HZ,
						.period = a->period};
	return 0;
}

int session_init(const struct session_arguments *a, u32 follow, bool keep_times,
		 struct identities *identities, struct session *ret)
{
	_cleanup_list_ struct list pids = {}, comms = {}, cgroups = {}, uids = {}, names = {};
	struct sampler_event events[SAMPLER_MAX_SOURCES];
	_cleanup_free_ u32 *pid_values = NULL;
	_cleanup_free_ u32 *uid_values = NULL;
	struct pipeline_options po = {
		.keep_times = keep_times,
		.memory_limit_bytes = a->tables_bytes ? a->tables_bytes : a->memory_limit_mb << 20,
		.max_section = a->max_section,
		.budget = a->budget,
		.tight_memory = a->tight_memory,
	};
	struct session s = {};
	struct diag diag = {};
	int r;

	if (a->kernel_only && a->user_only)
		return cli_error(2, "--kernel-only and --user-only exclude each other");
	if (list_init(&names, a->events ? a->events : SAMPLER_DEFAULT_EVENT) < 0 ||
	    list_init(&pids, a->pids) < 0 || list_init(&comms, a->comms) < 0 ||
	    list_init(&cgroups, a->cgroups) < 0 || list_init(&uids, a->uids) < 0)
		return cli_error(1, "out of memory");
	r = choose_events(&names, a, events);
	if (r)
		return r;
	pid_values = calloc(pids.items.n + 2, sizeof(*pid_values));
	uid_values = calloc(uids.items.n + 1, sizeof(*uid_values));
	if (!pid_values || !uid_values)
		return cli_error(1, "out of memory");
	r = parse_pids(&pids, pid_values);
	if (r == 0)
		r = parse_uids(&uids, uid_values);
	if (r)
		return r;
	if (probe_require(&diag) < 0)
		return cli_error(1, "%s", diag.text);
	if (a->verbose)
		log_set_level(LOG_LEVEL_DEBUG);
	raise_file_limit();
	po.sampler = (struct sampler_options){
		.events = events,
		.n_events = (u32)names.items.n,
		.kernel_stacks = !a->user_only,
		.user_stacks = !a->kernel_only,
		.pids = pid_values,
		.n_pids = (u32)pids.items.n,
		.follow_forks = follow != 0,
		.comms = comms.items.data,
		.n_comms = (u32)comms.items.n,
		.cgroups = cgroups.items.data,
		.n_cgroups = (u32)cgroups.items.n,
		.uids = uid_values,
		.n_uids = (u32)uids.items.n,
	};
	if (follow)
		pid_values[po.sampler.n_pids++] = follow;
	if (identities)
		run_connect_pipeline(identities, &po);
	r = pipeline_create(&po, &diag, &s.pipeline);
	if (r < 0)
		return cli_fail(r, &diag);
	r = start_symbolizer(a, identities, &s);
	if (r) {
		session_deinit(&s);
		return r;
	}
	*ret = s;
	return 0;
}

bool session_same(const struct session_arguments *a, const struct session_arguments *b)
{
	return a->hz == b->hz && a->period == b->period && str_same(a->events, b->events) &&
	       str_same(a->pids, b->pids) && str_same(a->comms, b->comms) &&
	       str_same(a->cgroups, b->cgroups) && str_same(a->uids, b->uids) &&
	       a->memory_limit_mb == b->memory_limit_mb && a->kernel_only == b->kernel_only &&
	       a->user_only == b->user_only && a->no_inline == b->no_inline &&
	       a->runtime_frames == b->runtime_frames;
}

int session_profile(struct session *s, struct profile **ret)
{
	struct pipeline_batch *b = pipeline_take(s->pipeline);
	struct profile *profiles[SAMPLER_MAX_SOURCES] = {};
	int r = b ? symbolizer_profiles(s->symbolizer, b, profiles) : -ENOMEM;

	pipeline_give_back(s->pipeline, b);
	for (u32 i = 1; i < SAMPLER_MAX_SOURCES; i++)
		profile_destroy(profiles[i]);
	if (r == 0)
		*ret = profiles[0];
	return r;
}

void session_deinit(struct session *s)
{
	symbolizer_destroy(s->symbolizer);
	pipeline_destroy(s->pipeline);
	*s = (struct session){};
}

static volatile sig_atomic_t ended, reload;

static void on_signal(int signo)
{
	(void)signo;
	ended = 1;
}

void session_catch_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal};

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool session_ended(void)
{
	return ended;
}

static void on_hangup(int signo)
{
	(void)signo;
	reload = 1;
}

void session_catch_reload(void)
{
	struct sigaction act = {.sa_handler = on_hangup};

	sigaction(SIGHUP, &act, NULL);
}

bool session_reload_wanted(void)
{
	bool wanted = reload;

	reload = 0;
	return wanted;
}
