/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recordings of JVMs, and the thread that asks for them. A recording goes to the JVM's disk,
 * because one in memory would lose events whenever another recording of the JVM goes there. Each
 * dump ends a chunk (jdk.jfr.internal.PlatformRecorder), and contains those that the JVM still has,
 * so chunks that an earlier dump had are passed over by the time of their begin.
 *
 * The lock guards `all`, and of each flight `image` and `seen`; all else of a flight that changes
 * is the thread's, who alone removes one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/attach/internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "format/format.h"
#include "proc/proc.h"

#define MAX_FLIGHTS 256
#define NS_PER_MS 1000000ULL
/*
 * For one answer. Most take milliseconds; the first start of a JVM's recorder takes a second of CPU
 * time, on a busy machine ten.
 */
#define ASK_MS 20000
/* A listener that was busy when the last command was sent. */
#define ASK_AGAIN_MS 2000
/* For all that is left to do at the end: units of systemd end the agent after 15 s. */
#define FINISH_MS 8000
/* How long after a process that is starting is looked at again. */
#define AGAIN_NS 500000000ULL
#define MAX_TRIES 12 /* 40 s in all, because each pause is longer than the one before */
#define PARSER_MAX_BYTES (192ULL << 20)
#define PROFILE_MAX_BYTES (64ULL << 20)
/* The JVM keeps chunks for so many periods, and so many bytes of them. */
#define KEEP_PERIODS 4
#define KEEP_MIN_S 20
#define KEEP_MB 64
/* The first release that samples allocations; earlier ones tell of allocation buffers. */
#define FIRST_SAMPLES 16
#define FIRST_RECORDER 8
/* As in the JDK's default.jfc. */
#define THROTTLE "150/s"

enum flight_state {
	FLIGHT_NEW,
	FLIGHT_RUNNING,
	FLIGHT_REFUSED, /* not asked again */
	FLIGHT_STOPPED,
};

struct flight {
	u32 pid;
	u64 image;
	char comm[16];
	bool seen; /* since the last reselection */

	enum flight_state state;
	struct jvm jvm;
	bool by_tlab;
	u64 last_ns; /* the begin of the last chunk that was read; since the epoch */
	u64 from_ns; /* what was fetched ends here; CLOCK_REALTIME */
	u64 try_ns;  /* with FLIGHT_NEW: not before; CLOCK_MONOTONIC */
	u32 n_tries;
	bool may_run;		       /* a recording was asked for, and not stopped since */
	char exit_name[JVM_FILE_NAME]; /* what the JVM writes when it ends by itself */
	/* Threads, by their ids in the JVM's PID namespace, that were there before the recording
	 * and have no sample yet. */
	vec(u32) old;
};

struct flights {
	struct flights_options o;
	struct parser *parser; /* owned; the thread's */
	pthread_t thread;
	bool started;

	pthread_mutex_t lock; /* of all fields below */
	pthread_cond_t wake;
	vec(struct flight *) all; /* owned */
	bool ending, reselecting, full;
	u64 period_ns, next_ns;
	u64 latest_ms;	     /* of answers; atomic */
	struct profile *sum; /* owned; NULL: nothing was recorded */
	struct flights_stats stats;
};

/* ---- asking ---- */

static int ask_for(struct flights *f, struct flight *fl, const char *command, u32 timeout_ms,
		   struct str *ret_text, struct diag *reterr_diag)
{
	u64 begin = clock_ns(CLOCK_MONOTONIC);
	int r = jvm_ask(&fl->jvm, command, timeout_ms, ret_text, reterr_diag);

	pthread_mutex_lock(&f->lock);
	f->stats.waited_ns += clock_ns(CLOCK_MONOTONIC) - begin;
	pthread_mutex_unlock(&f->lock);
	return r;
}

static int ask(struct flights *f, struct flight *fl, const char *command, struct str *ret_text,
	       struct diag *reterr_diag)
{
	return ask_for(f, fl, command, ASK_MS, ret_text, reterr_diag);
}

/* After an error: whatever the recording has is dropped. */
static void stop_quietly(struct flights *f, struct flight *fl)
{
	_cleanup_str_ struct str text = {};

	if (fl->may_run && !jvm_has_ended(&fl->jvm) &&
	    ask_for(f, fl, "JFR.stop name=" ATTACH_RECORDING, ASK_AGAIN_MS, &text, NULL) == 0)
		fl->may_run = false;
	if (*fl->exit_name)
		jvm_remove_file(&fl->jvm, fl->exit_name);
}

/* An error that the JVM tells in words. */
static int say(const struct str *answer, struct diag *reterr_diag)
{
	char line[200];

	answer_line(str_get(answer), line, sizeof(line));
	return diag_set(reterr_diag, -EPROTO, "its Flight Recorder says: %s", line);
}

/* ---- beginning ---- */

static const char settings_by_samples[] =
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	"<configuration version=\"2.0\"><event name=\"jdk.ObjectAllocationSample\">"
	"<setting name=\"enabled\">true</setting><setting name=\"stackTrace\">true</setting>"
	"<setting name=\"throttle\">" THROTTLE "</setting></event></configuration>\n";
static const char settings_by_tlab[] =
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	"<configuration version=\"2.0\"><event name=\"jdk.ObjectAllocationInNewTLAB\">"
	"<setting name=\"enabled\">true</setting><setting name=\"stackTrace\">true</setting>"
	"</event><event name=\"jdk.ObjectAllocationOutsideTLAB\">"
	"<setting name=\"enabled\">true</setting><setting name=\"stackTrace\">true</setting>"
	"</event></configuration>\n";

static int find_release(struct flights *f, struct flight *fl, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {};
	int r = ask(f, fl, "VM.version", &text, reterr_diag);
	u32 release = r == 0 ? answer_release(str_get(&text)) : 0;

	if (r < 0)
		return r;
	if (release < FIRST_RECORDER)
		return diag_set(reterr_diag, -ENOTSUP, "it does not tell its release");
	fl->by_tlab = release < FIRST_SAMPLES;
	return 0;
}

/* Stops what an agent has left behind that was killed. */
static int stop_old(struct flights *f, struct flight *fl, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {}, stopped = {};
	char name[JVM_FILE_NAME], command[160];
	int r = ask(f, fl, "JFR.check", &text, reterr_diag);

	if (r < 0 || !answer_has_recording(str_get(&text), ATTACH_RECORDING))
		return r;
	log_info("pid %u (%s): its recording '" ATTACH_RECORDING "' of an earlier agent is stopped",
		 fl->pid, fl->comm);
	r = jvm_file_name(".jfr", name);
	if (r < 0)
		return r;
	/* Without a name it goes into the file for the JVM's end. */
	snprintf(command, sizeof(command), "JFR.stop name=" ATTACH_RECORDING " filename=/tmp/%s",
		 name);
	r = ask(f, fl, command, &stopped, reterr_diag);
	jvm_remove_file(&fl->jvm, name);
	return r;
}

static int start_recording(struct flights *f, struct flight *fl, struct diag *reterr_diag)
{
	char settings[JVM_FILE_NAME], command[320];
	u64 keep_s = MAX(KEEP_PERIODS * f->o.period_ms / 1000, (u64)KEEP_MIN_S);
	_cleanup_str_ struct str text = {};
	int r = jvm_file_name(".jfc", settings);

	if (r == 0)
		r = jvm_file_name(".jfr", fl->exit_name);
	if (r == 0)
		r = jvm_write_file(&fl->jvm, settings,
				   fl->by_tlab ? settings_by_tlab : settings_by_samples);
	if (r < 0)
		return diag_set(reterr_diag, r, "a file in its /tmp cannot be written: %s",
				strerror(-r));
	snprintf(command, sizeof(command),
		 "JFR.start name=" ATTACH_RECORDING
		 " settings=/tmp/%s disk=true maxage=%llus maxsize=%dm dumponexit=true "
		 "filename=/tmp/%s",
		 settings, keep_s, KEEP_MB, fl->exit_name);
	fl->may_run = true;
	r = ask(f, fl, command, &text, reterr_diag);
	jvm_remove_file(&fl->jvm, settings);
	if (r == 0 && !strstr(str_get(&text), "Started recording"))
		r = say(&text, reterr_diag);
	return r;
}

static int note_threads(struct flight *fl)
{
	struct map threads = {};
	int r = 0;

	jvm_threads(&fl->jvm, &threads);
	map_foreach (&threads, slot)
		if (r == 0)
			r = vec_push(&fl->old, (u32)slot->key);
	map_deinit(&threads);
	return r;
}

/* Those that have samples have the right weights from now on. */
static void forget_threads(struct flight *fl, const struct profile *p)
{
	for (size_t i = 0; i < p->threads.n; i++)
		for (size_t k = 0; k < fl->old.n; k++)
			if (fl->old.data[k] == p->threads.data[i].tid) {
				fl->old.data[k] = fl->old.data[--fl->old.n];
				break;
			}
}

static int begin_flight(struct flights *f, struct flight *fl, struct diag *reterr_diag)
{
	int r = jvm_may_ask(&fl->jvm, reterr_diag);

	if (r == 0)
		r = find_release(f, fl, reterr_diag);
	if (r == 0)
		r = stop_old(f, fl, reterr_diag);
	if (r == 0 && !fl->by_tlab)
		r = note_threads(fl);
	if (r == 0)
		r = start_recording(f, fl, reterr_diag);
	return r;
}

static void set_state(struct flights *f, struct flight *fl, enum flight_state state)
{
	pthread_mutex_lock(&f->lock);
	f->stats.running += state == FLIGHT_RUNNING;
	f->stats.running -= fl->state == FLIGHT_RUNNING;
	f->stats.refused += state == FLIGHT_REFUSED;
	pthread_mutex_unlock(&f->lock);
	fl->state = state;
}

static void refuse(struct flights *f, struct flight *fl, int error, const struct diag *d)
{
	if (error != -ESRCH && !jvm_has_ended(&fl->jvm))
		log_warn("pid %u (%s): what it allocates is not recorded: %s", fl->pid, fl->comm,
			 d->text[0] ? d->text : strerror(-error));
	else
		log_debug("pid %u: not recorded any more: %s", fl->pid, d->text);
	set_state(f, fl, FLIGHT_REFUSED);
}

static void try_to_begin(struct flights *f, struct flight *fl)
{
	u64 now = clock_ns(CLOCK_MONOTONIC);
	struct diag d = {};
	int r = 0;

	if (now < fl->try_ns)
		return;
	if (fl->jvm.pidfd < 0)
		r = jvm_open(&fl->jvm, &d);
	if (r == 0)
		r = begin_flight(f, fl, &d);
	if (r == -EAGAIN && fl->n_tries++ < MAX_TRIES) {
		log_debug("pid %u: not attached yet: %s", fl->pid, d.text);
		fl->try_ns = now + AGAIN_NS * fl->n_tries;
	} else if (r < 0) {
		refuse(f, fl, r, &d);
		/* It may have begun after the time was over. */
		stop_quietly(f, fl);
	} else {
		fl->from_ns = clock_ns(CLOCK_REALTIME);
		log_debug("pid %u (%s): Flight Recorder started, by %s", fl->pid, fl->comm,
			  fl->by_tlab ? "allocation buffers" : "samples");
		set_state(f, fl, FLIGHT_RUNNING);
	}
}

/* ---- fetching ---- */

static int parse(struct flights *f, struct flight *fl, int fd, struct profile **ret,
		 struct diag *reterr_diag)
{
	const struct parser_dump dump = {.fd = fd,
					 .max_bytes = DUMP_MAX_BYTES,
					 .after_ns = fl->last_ns,
					 .by_tlab = fl->by_tlab,
					 .tids = fl->old.data,
					 .n_tids = fl->old.n};
	_cleanup_str_ struct str pprof = {};
	u64 last_ns = 0;
	int r = parser_read_dump(f->parser, &dump, &pprof, &last_ns);

	if (r == 0)
		r = profile_read_bytes("dump", (const u8 *)str_get(&pprof), pprof.n, "pprof",
				       PROFILE_MAX_BYTES, ret, reterr_diag);
	if (r < 0)
		return diag_set(reterr_diag, r, "its dump cannot be read: %s", strerror(-r));
	forget_threads(fl, *ret);
	fl->last_ns = MAX(fl->last_ns, last_ns);
	return 0;
}

/* Adds a profile to the sum of the period. */
static int add(struct flights *f, struct flight *fl, struct profile *p, struct diag *reterr_diag)
{
	u64 now = clock_ns(CLOCK_REALTIME), image;
	int r;

	pthread_mutex_lock(&f->lock);
	image = fl->image;
	pthread_mutex_unlock(&f->lock);
	r = dump_identify(p, &fl->jvm, image, fl->comm, f->o.identities);
	p->time_ns = fl->from_ns;
	p->duration_ns = now > fl->from_ns ? now - fl->from_ns : 1;
	fl->from_ns = now;
	if (r < 0 || !p->n_samples)
		return r;
	pthread_mutex_lock(&f->lock);
	if (!f->sum)
		f->sum = profile_create();
	r = f->sum ? profile_merge(f->sum, p, reterr_diag) : -ENOMEM;
	pthread_mutex_unlock(&f->lock);
	return r;
}

static void count_dump(struct flights *f, bool failed, u64 bytes)
{
	u64 cpu_ns = parser_usage(f->parser).cpu_ns;

	pthread_mutex_lock(&f->lock);
	f->stats.dumps++;
	f->stats.failed += failed;
	f->stats.bytes += bytes;
	f->stats.parser_ns = cpu_ns;
	pthread_mutex_unlock(&f->lock);
}

/* Adds what a file has that the JVM has written. -ENOENT: there is none. */
static int take(struct flights *f, struct flight *fl, const char *name, struct diag *reterr_diag)
{
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_close_ int fd = -1;
	u64 bytes = 0;
	int r = jvm_take_file(&fl->jvm, name, &fd, &bytes);

	if (r == -ENOENT)
		return r;
	if (r < 0)
		(void)diag_set(reterr_diag, r, "its dump is refused: %s", strerror(-r));
	else
		r = parse(f, fl, fd, &p, reterr_diag);
	if (r == 0)
		r = add(f, fl, p, reterr_diag);
	count_dump(f, r < 0, bytes);
	return r;
}

/* What was recorded since the last time; `what` is the command that writes it. */
static int fetch(struct flights *f, struct flight *fl, const char *what, struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {};
	char name[JVM_FILE_NAME], command[160];
	int r = jvm_file_name(".jfr", name), asked;

	if (r < 0)
		return r;
	snprintf(command, sizeof(command), "%s name=" ATTACH_RECORDING " filename=/tmp/%s", what,
		 name);
	asked = ask(f, fl, command, &text, reterr_diag);
	/* Whatever it answers, the file must go. */
	r = take(f, fl, name, reterr_diag);
	if (r != -ENOENT)
		return asked < 0 ? asked : r;
	count_dump(f, true, 0);
	return asked < 0 ? asked : say(&text, reterr_diag);
}

/* A JVM that was recorded has ended. */
static void take_end(struct flights *f, struct flight *fl)
{
	struct diag d = {};
	int r = take(f, fl, fl->exit_name, &d);

	if (r == 0)
		return;
	pthread_mutex_lock(&f->lock);
	f->stats.lost_ends++;
	pthread_mutex_unlock(&f->lock);
	log_debug("pid %u (%s): it has ended; what it allocated since the last dump is lost: %s",
		  fl->pid, fl->comm, d.text[0] ? d.text : strerror(-r));
}

/* Stops the recording; what it had since the last dump is fetched. */
static void stop(struct flights *f, struct flight *fl)
{
	struct diag d = {};
	int r;

	if (fl->state != FLIGHT_RUNNING) {
		stop_quietly(f, fl);
		return;
	}
	if (jvm_has_ended(&fl->jvm)) {
		take_end(f, fl);
		return;
	}
	r = fetch(f, fl, "JFR.stop", &d);
	if (r < 0) {
		log_warn("pid %u (%s): the end of what it has allocated is lost: %s", fl->pid,
			 fl->comm, d.text[0] ? d.text : strerror(-r));
	} else {
		fl->may_run = false;
	}
	/* The JVM has made the file for its end, empty; and if it was the dump that failed ... */
	stop_quietly(f, fl);
	set_state(f, fl, FLIGHT_STOPPED);
}

static void dump(struct flights *f, struct flight *fl)
{
	struct diag d = {};
	int r = fetch(f, fl, "JFR.dump", &d);

	if (r == 0)
		return;
	if (jvm_has_ended(&fl->jvm))
		return; /* the next look takes its end */
	/* Not a process that lies or hangs, and no recording that somebody has stopped. */
	stop_quietly(f, fl);
	refuse(f, fl, r, &d);
}

/* ---- the thread ---- */

static void flight_free(struct flight *fl)
{
	jvm_close(&fl->jvm);
	vec_deinit(&fl->old);
	free(fl);
}

/* Under the lock. */
static void drop(struct flights *f, size_t i)
{
	struct flight *fl = f->all.data[i];

	f->stats.running -= fl->state == FLIGHT_RUNNING;
	f->all.data[i] = f->all.data[--f->all.n];
	flight_free(fl);
}

static bool has_ended(const struct flight *fl)
{
	struct proc_stat stat;

	if (fl->jvm.pidfd >= 0)
		return jvm_has_ended(&fl->jvm);
	return proc_stat_read(fl->pid, &stat) < 0 || stat.start_stack != fl->jvm.start_stack;
}

/* True: it is to be forgotten. */
static bool look_at(struct flights *f, struct flight *fl, bool is_due, bool is_wanted)
{
	if (has_ended(fl)) {
		if (fl->state == FLIGHT_RUNNING)
			take_end(f, fl);
		else
			stop_quietly(f, fl);
		return true;
	}
	if (!is_wanted) {
		stop(f, fl);
		return true;
	}
	if (fl->state == FLIGHT_NEW)
		try_to_begin(f, fl);
	else if (fl->state == FLIGHT_RUNNING && is_due)
		dump(f, fl);
	return false;
}

/* Under the lock, which it leaves while processes are asked. */
static void look_at_all(struct flights *f, bool is_due, bool reselect)
{
	for (size_t i = 0; i < f->all.n && !f->ending;) {
		struct flight *fl = f->all.data[i];
		bool wanted = !reselect || fl->seen, gone;

		pthread_mutex_unlock(&f->lock);
		gone = look_at(f, fl, is_due, wanted);
		pthread_mutex_lock(&f->lock);
		if (gone)
			drop(f, i);
		else
			i++;
	}
}

/* Under the lock. */
static struct profile *take_sum(struct flights *f)
{
	struct profile *p = f->sum;

	f->sum = NULL;
	if (p)
		profile_drop_empty_types(p);
	return p;
}

/* Under the lock, which it leaves for the call. */
static void give_sum(struct flights *f)
{
	struct profile *p = f->o.take ? take_sum(f) : NULL;

	if (!p)
		return;
	pthread_mutex_unlock(&f->lock);
	f->o.take(f->o.arg, p);
	pthread_mutex_lock(&f->lock);
}

/* Under the lock. */
static void end_all(struct flights *f)
{
	while (f->all.n) {
		struct flight *fl = f->all.data[0];

		pthread_mutex_unlock(&f->lock);
		stop(f, fl);
		pthread_mutex_lock(&f->lock);
		drop(f, 0);
	}
	give_sum(f);
}

static void *fly(void *arg)
{
	struct flights *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->ending) {
		u64 now = clock_ns(CLOCK_MONOTONIC);
		bool is_due = now >= f->next_ns, reselect = f->reselecting;

		f->reselecting = false;
		if (is_due)
			f->next_ns = now + f->period_ns;
		look_at_all(f, is_due, reselect);
		if (is_due || reselect)
			give_sum(f);
		now = clock_ns(CLOCK_MONOTONIC);
		if (!f->ending && now < f->next_ns)
			(void)thread_wait(&f->wake, &f->lock, MIN(f->next_ns - now, AGAIN_NS));
	}
	end_all(f);
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

int flights_create(const struct flights_options *o, struct flights **ret)
{
	const struct parser_options po = {.parsers = o->parsers, .max_bytes = PARSER_MAX_BYTES};
	struct flights *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return -ENOMEM;
	f->o = *o;
	f->period_ns = o->period_ms * NS_PER_MS;
	f->latest_ms = ~0ULL;
	f->next_ns = clock_ns(CLOCK_MONOTONIC) + f->period_ns;
	thread_sync_init(&f->lock, &f->wake);
	r = parser_create(&po, &f->parser);
	if (r == 0)
		r = thread_start(&f->thread, "flights", fly, f);
	f->started = r == 0;
	if (r < 0) {
		flights_destroy(f);
		return r;
	}
	*ret = f;
	return 0;
}

void flights_finish(struct flights *f)
{
	if (!f || !f->started)
		return;
	pthread_mutex_lock(&f->lock);
	f->ending = true;
	__atomic_store_n(&f->latest_ms, jvm_now_ms() + FINISH_MS, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	f->started = false;
}

void flights_destroy(struct flights *f)
{
	if (!f)
		return;
	flights_finish(f);
	parser_destroy(f->parser);
	profile_destroy(f->sum);
	vec_deinit(&f->all);
	pthread_cond_destroy(&f->wake);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

/* ---- called by other threads ---- */

/* Under the lock. */
static struct flight *find_flight(const struct flights *f, const struct procman_process *p)
{
	for (size_t i = 0; i < f->all.n; i++)
		if (f->all.data[i]->jvm.pid == p->pid &&
		    f->all.data[i]->jvm.start_stack == p->start_stack)
			return f->all.data[i];
	return NULL;
}

/* Under the lock. */
static struct flight *add_flight(struct flights *f, const struct procman_process *p, u64 flag_avma)
{
	struct flight *fl;

	if (f->all.n >= MAX_FLIGHTS) {
		if (!f->full)
			log_warn("more than %d JVMs: those that come later are not recorded",
				 MAX_FLIGHTS);
		f->full = true;
		return NULL;
	}
	fl = calloc(1, sizeof(*fl));
	if (!fl || vec_push(&f->all, fl) < 0) {
		free(fl);
		return NULL;
	}
	fl->pid = p->pid;
	fl->jvm = jvm_of(p, flag_avma);
	fl->jvm.latest_ms = &f->latest_ms;
	memcpy(fl->comm, p->comm, sizeof(fl->comm));
	pthread_cond_signal(&f->wake);
	return fl;
}

void flights_see(void *flights, const struct procman_process *p, u64 flag_avma)
{
	struct flights *f = flights;
	struct flight *fl;

	if (!p->start_stack)
		return;
	pthread_mutex_lock(&f->lock);
	fl = f->ending ? NULL : find_flight(f, p);
	if (!fl && !f->ending)
		fl = add_flight(f, p, flag_avma);
	if (fl) {
		fl->seen = true;
		fl->image = p->image;
	}
	pthread_mutex_unlock(&f->lock);
}

void flights_reselect(struct flights *f)
{
	pthread_mutex_lock(&f->lock);
	f->reselecting = true;
	vec_foreach (&f->all, fl)
		(*fl)->seen = false;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
}

void flights_set_period(struct flights *f, u32 period_ms)
{
	pthread_mutex_lock(&f->lock);
	f->period_ns = period_ms * NS_PER_MS;
	pthread_mutex_unlock(&f->lock);
}

int flights_profile(struct flights *f, struct profile **ret)
{
	struct profile *p;

	pthread_mutex_lock(&f->lock);
	p = take_sum(f);
	pthread_mutex_unlock(&f->lock);
	if (!p) {
		p = profile_create();
		if (!p || profile_add_table_type(p, SAMPLE_TYPE_ALLOC_SAMPLE_BYTES) < 0) {
			profile_destroy(p);
			return -ENOMEM;
		}
	}
	*ret = p;
	return 0;
}

void flights_get_stats(struct flights *f, struct flights_stats *ret)
{
	pthread_mutex_lock(&f->lock);
	*ret = f->stats;
	pthread_mutex_unlock(&f->lock);
}

#define COUNTER(member, help) STAT_COUNTER(struct flights_stats, member, help)
const struct stat_field flights_stat_fields[] = {
	STAT_GAUGE(struct flights_stats, running, "JVMs whose Flight Recorder runs for culprit."),
	COUNTER(refused, "JVMs that are not recorded."),
	COUNTER(dumps, "Dumps that JVMs were asked for."),
	COUNTER(failed, "Of these, failed: what they had is lost."),
	COUNTER(lost_ends, "JVMs that ended and did not write what they had last."),
	COUNTER(bytes, "Bytes of dumps."),
	COUNTER(waited_ns, "Nanoseconds of waiting for answers of JVMs."),
	COUNTER(parser_ns, "Nanoseconds of CPU time for parsing dumps."),
	{},
};
