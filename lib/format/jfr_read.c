/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads recordings of JDK Flight Recorder, and those of async-profiler in its format: events with a
 * stack, each a sample with its time. `event_kinds` has those that are read; the reader tells which
 * others the recording has. jdk.NativeMethodSample is left out: threads in native code are sampled
 * whether the code runs or waits.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/vocab.h"
#include "format/jfr_reader.h"

#define PROCESS "java"
#define NS_PER_S 1000000000ULL
#define EXECUTION "jdk.ExecutionSample"
#define WALL_CLOCK "wall" /* as async-profiler names it in its settings */
#define MAX_PERIOD_NS (86400 * NS_PER_S)
#define MAX_VALUE (1ULL << 56)
/* async-profiler's, when it was not told an interval. */
#define DEFAULT_CPU_NS 10000000
#define DEFAULT_WALL_NS 50000000
#define MAX_TOLD 6

static void reader_deinit(struct jfr_reader *f)
{
	profile_destroy(f->p);
	map_deinit(&f->stacks);
	map_deinit(&f->threads);
	map_deinit(&f->functions);
	map_deinit(&f->natives);
	map_deinit(&f->left_out);
	map_deinit(&f->firsts);
	map_deinit(&f->begun);
	strtab_deinit(&f->left_out_names);
	vec_deinit(&f->frames);
	str_deinit(&f->text);
	str_deinit(&f->other);
}

/* ---- settings ---- */

/* "20 ms", "10000000" (nanoseconds); 0: something else. */
static u64 parse_period(const char *text)
{
	static const struct {
		const char *unit;
		u64 ns;
	} units[] = {{"", 1},
		     {"ns", 1},
		     {"us", 1000},
		     {"ms", 1000000},
		     {"s", NS_PER_S},
		     {"m", 60 * NS_PER_S},
		     {"h", 3600 * NS_PER_S}};
	char number[24];
	size_t n = strspn(text, "0123456789");
	u64 v;

	if (!n || n >= sizeof(number))
		return 0;
	memcpy(number, text, n);
	number[n] = '\0';
	text += n + strspn(text + n, " ");
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(text, units[i].unit) && str_to_u64(number, 10, &v) == 0 &&
		    v <= MAX_PERIOD_NS / units[i].ns)
			return v * units[i].ns;
	return 0;
}

/* jdk.ActiveSetting; async-profiler's settings have names of their own. */
static int read_setting(struct jfr_reader *f, struct buf *b, const struct jfr_class *k)
{
	u64 id = 0;
	const struct jfr_wanted w[] = {
		{.name = "id", .what = WANT_INTEGER, .number = &id},
		{.name = "name", .what = WANT_STRING, .text = &f->text},
		{.name = "value", .what = WANT_STRING, .text = &f->other},
	};
	const struct jfr_class *of;
	const char *name, *value;
	int r;

	str_clear(&f->text);
	str_clear(&f->other);
	r = jfr_read_fields(f, b, k, w, ARRAY_SIZE(w));
	if (r < 0)
		return r;
	name = str_get(&f->text);
	value = str_get(&f->other);
	of = jfr_class(f->c, id);
	if (!strcmp(name, "interval")) {
		f->has_interval = true;
		f->interval_ns = parse_period(value);
	} else if (!strcmp(name, "event"))
		f->event_is_wall = !strcmp(value, WALL_CLOCK);
	else if (!strcmp(name, WALL_CLOCK))
		f->wall_ns = parse_period(value);
	else if (!strcmp(name, "period") && of && !strcmp(jfr_class_name(f->c, of), EXECUTION))
		f->period_ns = parse_period(value);
	return 0;
}

/* ---- events ---- */

/* A value of samples. The order is that of the types in the profile: the first is shown. */
#define VALUES(X)                                                                                  \
	X(CPU, "cpu", NANOSECONDS)                                                                 \
	X(SAMPLES, "cpu", NANOSECONDS)                                                             \
	X(WALL, "wall", NANOSECONDS)                                                               \
	X(ALLOC_SAMPLE_BYTES, "space", BYTES)                                                      \
	X(ALLOC_SAMPLE_OBJECTS, "space", BYTES)                                                    \
	X(TLAB_BYTES, "space", BYTES)                                                              \
	X(TLAB_OBJECTS, "space", BYTES)                                                            \
	X(OUTSIDE_TLAB_BYTES, "space", BYTES)                                                      \
	X(OUTSIDE_TLAB_OBJECTS, "space", BYTES)                                                    \
	X(MALLOC_BYTES, "space", BYTES)                                                            \
	X(MALLOC_OBJECTS, "space", BYTES)                                                          \
	X(LIVE_BYTES, "objects", COUNT)                                                            \
	X(LIVE_OBJECTS, "objects", COUNT)                                                          \
	X(MUTEX_DELAY, "mutex", COUNT)                                                             \
	X(MUTEX_CONTENTIONS, "mutex", COUNT)                                                       \
	X(BLOCK_DELAY, "block", COUNT)                                                             \
	X(BLOCK_CONTENTIONS, "block", COUNT)
enum value {
#define X(type, ...) VALUE_##type,
	VALUES(X)
#undef X
		VALUE_N
};

/* The periods are named as Pyroscope's clients name them. */
static int add_types(struct profile *p)
{
	static const struct {
		enum sample_type type;
		const char *period;
		enum unit unit;
	} types[] = {
#define X(type, period, unit) {SAMPLE_TYPE_##type, period, UNIT_##unit},
		VALUES(X)
#undef X
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(types) && r == 0; i++) {
		const char *group = vocab_sample_type(types[i].type)->profile;
		const char *period = types[i].period, *unit = vocab_unit(types[i].unit);
		struct profile_type *t = &p->types[p->n_types];

		r = profile_add_table_type(p, types[i].type);
		if (r == 0)
			r = profile_add_string(p, group, strlen(group), &t->group);
		if (r == 0)
			r = profile_add_string(p, period, strlen(period), &t->period_name);
		if (r == 0)
			r = profile_add_string(p, unit, strlen(unit), &t->period_unit);
	}
	return r;
}

/* How an event's number becomes the value. */
enum weight {
	WEIGHT_NUMBER, /* as it is: bytes, nanoseconds */
	WEIGHT_TICKS,  /* of the recording's clock */
	WEIGHT_CPU,    /* of samples on the CPU: one, by the thread's state */
	WEIGHT_WALL,   /* of samples, each of the interval of the wall clock */
};

static const struct event_kind {
	const char *name, *thread;
	const char *number; /* the field, or NULL */
	enum weight weight;
	enum value value, count;
} event_kinds[] = {
	{EXECUTION, "sampledThread", NULL, WEIGHT_CPU, VALUE_CPU, VALUE_SAMPLES},
	{"jdk.CPUTimeSample", "eventThread", "samplingPeriod", WEIGHT_NUMBER, VALUE_CPU,
	 VALUE_SAMPLES},
	{"profiler.WallClockSample", "sampledThread", "samples", WEIGHT_WALL, VALUE_WALL, VALUE_N},
	{"jdk.ObjectAllocationSample", "eventThread", "weight", WEIGHT_NUMBER,
	 VALUE_ALLOC_SAMPLE_BYTES, VALUE_ALLOC_SAMPLE_OBJECTS},
	{"jdk.ObjectAllocationInNewTLAB", "eventThread", "tlabSize", WEIGHT_NUMBER,
	 VALUE_TLAB_BYTES, VALUE_TLAB_OBJECTS},
	{"jdk.ObjectAllocationOutsideTLAB", "eventThread", "allocationSize", WEIGHT_NUMBER,
	 VALUE_OUTSIDE_TLAB_BYTES, VALUE_OUTSIDE_TLAB_OBJECTS},
	{"profiler.Malloc", "eventThread", "size", WEIGHT_NUMBER, VALUE_MALLOC_BYTES,
	 VALUE_MALLOC_OBJECTS},
	{"profiler.LiveObject", "eventThread", "allocationSize", WEIGHT_NUMBER, VALUE_LIVE_BYTES,
	 VALUE_LIVE_OBJECTS},
	{"jdk.OldObjectSample", "eventThread", "objectSize", WEIGHT_NUMBER, VALUE_LIVE_BYTES,
	 VALUE_LIVE_OBJECTS},
	{"jdk.JavaMonitorEnter", "eventThread", "duration", WEIGHT_TICKS, VALUE_MUTEX_DELAY,
	 VALUE_MUTEX_CONTENTIONS},
	{"jdk.ThreadPark", "eventThread", "duration", WEIGHT_TICKS, VALUE_BLOCK_DELAY,
	 VALUE_BLOCK_CONTENTIONS},
};

static u64 ticks_to_ns(const struct jfr_chunk *c, u64 ticks)
{
	unsigned __int128 ns = (unsigned __int128)ticks * NS_PER_S / c->ticks_per_s;

	return ns < INT64_MAX - NS_PER_S ? (u64)ns : INT64_MAX - NS_PER_S;
}

static u64 time_of(const struct jfr_chunk *c, u64 ticks)
{
	u64 after = ticks > c->start_ticks ? ticks_to_ns(c, ticks - c->start_ticks) : 0;

	return c->start_ns < INT64_MAX / 2 ? MIN(c->start_ns + after, (u64)INT64_MAX) : c->start_ns;
}

/* What a sample on the CPU stands for; 0: the recording does not tell. */
static u64 cpu_period(const struct jfr_reader *f)
{
	if (!f->has_interval)
		return f->period_ns;
	return f->interval_ns	  ? f->interval_ns
	       : f->event_is_wall ? DEFAULT_WALL_NS
				  : DEFAULT_CPU_NS;
}

static u64 wall_period(const struct jfr_reader *f)
{
	if (f->wall_ns)
		return f->wall_ns;
	return f->event_is_wall && f->interval_ns ? f->interval_ns : DEFAULT_WALL_NS;
}

/*
 * The JVM's own recorder takes samples of threads that run. async-profiler's clock of CPU time
 * takes them in the state DEFAULT, its wall clock in the states RUNNABLE and SLEEPING. Until
 * version 4 these are events of one class, and a recording with the wall clock alone has its CPU
 * time in RUNNABLE.
 */
static void value_by_state(const struct jfr_reader *f, const char *state, s64 values[VALUE_N])
{
	bool has_wall = f->event_is_wall || f->wall_ns;
	bool runs = !*state || !strcmp(state, "STATE_DEFAULT") || !strcmp(state, "STATE_RUNNABLE");
	bool by_wall = has_wall && strcmp(state, "STATE_DEFAULT") != 0;

	if (by_wall || !runs)
		values[VALUE_WALL] = (s64)wall_period(f);
	if (runs && (!by_wall || f->event_is_wall)) {
		values[VALUE_CPU] = (s64)cpu_period(f);
		values[VALUE_SAMPLES] = 1;
	}
}

/* Whether the event is the first of its thread, and has what the thread allocated before, too. */
static bool has_unknown_weight(const struct jfr_reader *f, u32 thread, u64 ticks)
{
	const u64 *first = map_get(&f->firsts, f->p->threads.data[thread].tid);

	return first && *first == ticks;
}

static void value_of(const struct jfr_reader *f, const struct event_kind *kind, u64 number,
		     const char *state, s64 values[VALUE_N])
{
	u64 v = number;

	if (kind->weight == WEIGHT_CPU) {
		value_by_state(f, state, values);
		return;
	}
	if (kind->weight == WEIGHT_TICKS)
		v = ticks_to_ns(f->c, number);
	else if (kind->weight == WEIGHT_WALL && __builtin_mul_overflow(number, wall_period(f), &v))
		v = 0;
	/* A number that is negative, or that no machine has, is unknown. */
	values[kind->value] = v < MAX_VALUE ? (s64)v : 0;
	if (kind->count < VALUE_N)
		values[kind->count] = 1;
}

static int read_event(struct jfr_reader *f, struct buf *b, const struct jfr_class *k,
		      const struct event_kind *kind)
{
	u64 ticks = 0, thread = 0, thread_class = 0, stack = 0, stack_class = 0, number = 0, time;
	u64 state = 0, state_class = 0;
	const struct jfr_wanted w[] = {
		{.name = "startTime", .what = WANT_INTEGER, .number = &ticks},
		{.name = kind->thread,
		 .what = WANT_KEY,
		 .number = &thread,
		 .class_id = &thread_class},
		{.name = "stackTrace",
		 .what = WANT_KEY,
		 .number = &stack,
		 .class_id = &stack_class},
		{.name = "state", .what = WANT_KEY, .number = &state, .class_id = &state_class},
		{.name = kind->number ? kind->number : "", .what = WANT_INTEGER, .number = &number},
	};
	s64 values[VALUE_N] = {};
	u32 thread_id, stack_id;
	int r = jfr_read_fields(f, b, k, w, ARRAY_SIZE(w));

	if (r == 0)
		r = jfr_read_thread(f, thread_class, thread, &thread_id);
	if (r == 0)
		r = jfr_read_stack(f, stack_class, stack, &stack_id);
	if (r == 0)
		r = jfr_read_symbol(f, state_class, state, "name", &f->text);
	if (r < 0)
		return r;
	value_of(f, kind, number, str_get(&f->text), values);
	if (kind->value == VALUE_ALLOC_SAMPLE_BYTES && has_unknown_weight(f, thread_id, ticks))
		values[kind->value] = 0;
	time = time_of(f->c, ticks);
	if (!f->p->time_ns || time < f->p->time_ns)
		f->p->time_ns = time;
	f->p->duration_ns = MAX(f->p->duration_ns, time - f->p->time_ns);
	f->n_read++;
	/* Objects that live are a state at the end; each of them has an event of its own. */
	if (kind->value == VALUE_LIVE_BYTES)
		time = 0;
	return profile_add_sample(f->p, time, thread_id, stack_id, values);
}

static const struct event_kind *find_kind(const struct jfr_chunk *c, const struct jfr_class *k)
{
	for (size_t i = 0; i < ARRAY_SIZE(event_kinds); i++)
		if (!strcmp(jfr_class_name(c, k), event_kinds[i].name))
			return &event_kinds[i];
	return NULL;
}

/* ---- what is not read ---- */

static bool has_stack(const struct jfr_reader *f, const struct jfr_class *k)
{
	for (size_t i = 0; i < k->fields.n; i++)
		if (!strcmp(jfr_field_name(f->c, &k->fields.data[i]), "stackTrace"))
			return true;
	return false;
}

/* Counts an event with a stack of a class that is not read. */
static int leave_out(struct jfr_reader *f, const struct jfr_class *k)
{
	const char *name = jfr_class_name(f->c, k);
	u64 *n;
	u32 id;
	int r;

	if (!has_stack(f, k))
		return 0;
	r = strtab_add(&f->left_out_names, name, strlen(name), &id);
	n = r == 0 ? map_get(&f->left_out, id) : NULL;
	return r < 0 ? r : map_put(&f->left_out, id, n ? *n + 1 : 1);
}

/* "jdk.SocketRead (12), jdk.FileRead (3)", the most frequent first. */
static void tell_left_out(struct jfr_reader *f, struct str *out)
{
	for (u32 told = 0; told < MAX_TOLD && f->left_out.n; told++) {
		u64 best = 0, n = 0;

		map_foreach (&f->left_out, slot)
			if (slot->value > n || (slot->value == n && slot->key < best)) {
				best = slot->key;
				n = slot->value;
			}
		str_printf(out, "%s%s (%llu)", told ? ", " : "",
			   strtab_get(&f->left_out_names, (u32)best), n);
		map_del(&f->left_out, best, NULL);
	}
	if (f->left_out.n)
		str_puts(out, ", ...");
}

/* ---- chunks ---- */

typedef int event_fn(struct jfr_reader *f, struct buf *event, const struct jfr_class *k);

static int each_event(struct jfr_reader *f, event_fn *fn)
{
	struct buf b = f->c->all;
	int r = 0;

	if (!buf_skip(&b, 68))
		return jfr_damaged(f->c, &b, "a chunk is cut off");
	while (buf_left(&b) && r == 0) {
		struct buf event = b, at = b;
		const struct jfr_class *k;
		u64 size, type;

		if (!jfr_integer(&at, &size) || size <= (u64)(at.pos - event.pos) ||
		    !buf_take(&b, size, &event))
			return jfr_damaged(f->c, &event, "an event is cut off");
		at.end = event.end;
		if (!jfr_integer(&at, &type))
			return jfr_damaged(f->c, &event, "an event is cut off");
		/* Metadata and constant pools are described nowhere. */
		k = jfr_class(f->c, type);
		if (k)
			r = fn(f, &at, k);
	}
	return r;
}

static int see_setting(struct jfr_reader *f, struct buf *event, const struct jfr_class *k)
{
	return k == f->setting ? read_setting(f, event, k) : 0;
}

/* A chunk has the events of all recordings of the JVM, not only of one. */
static bool is_wanted(const struct jfr_reader *f, const struct event_kind *kind)
{
	switch (kind->value) {
	case VALUE_ALLOC_SAMPLE_BYTES:
		return !f->only->by_tlab;
	case VALUE_TLAB_BYTES:
	case VALUE_OUTSIDE_TLAB_BYTES:
		return f->only->by_tlab;
	default:
		return false;
	}
}

static bool is_old(const struct profile_flight *only, u32 tid)
{
	for (size_t i = 0; i < only->n_tids; i++)
		if (only->tids[i] == tid)
			return true;
	return false;
}

/* The order of events in a chunk is not that of time. */
static int see_first(struct jfr_reader *f, struct buf *event, const struct jfr_class *k)
{
	const struct event_kind *kind = find_kind(f->c, k);
	u64 ticks = 0, thread = 0, thread_class = 0;
	const struct jfr_wanted w[] = {
		{.name = "startTime", .what = WANT_INTEGER, .number = &ticks},
		{.name = "eventThread",
		 .what = WANT_KEY,
		 .number = &thread,
		 .class_id = &thread_class},
	};
	const u64 *first;
	u32 id, tid;
	int r;

	if (!kind || kind->value != VALUE_ALLOC_SAMPLE_BYTES)
		return 0;
	r = jfr_read_fields(f, event, k, w, ARRAY_SIZE(w));
	if (r == 0)
		r = jfr_read_thread(f, thread_class, thread, &id);
	if (r < 0)
		return r;
	tid = f->p->threads.data[id].tid;
	first = map_get(&f->firsts, tid);
	if (first ? *first <= ticks : map_get(&f->begun, tid) || !is_old(f->only, tid))
		return 0;
	return map_put(&f->firsts, tid, ticks);
}

/* Threads whose samples from now on have the right weights. */
static int end_firsts(struct jfr_reader *f)
{
	int r = 0;

	map_foreach (&f->firsts, slot)
		if (r == 0)
			r = map_put(&f->begun, slot->key, 1);
	map_clear(&f->firsts);
	return r;
}

static int see_event(struct jfr_reader *f, struct buf *event, const struct jfr_class *k)
{
	const struct event_kind *kind = find_kind(f->c, k);

	if (f->only)
		return kind && is_wanted(f, kind) ? read_event(f, event, k, kind) : 0;
	return kind ? read_event(f, event, k, kind) : leave_out(f, k);
}

static int read_chunk(struct jfr_reader *f)
{
	int r = 0;

	map_clear(&f->stacks);
	map_clear(&f->threads);
	map_clear(&f->functions);
	map_clear(&f->natives);
	f->setting = jfr_class_by_name(f->c, "jdk.ActiveSetting");
	/* They hold for the events before them, too. */
	if (f->setting)
		r = each_event(f, see_setting);
	if (r == 0 && f->only && f->only->n_tids)
		r = each_event(f, see_first);
	if (r == 0)
		r = each_event(f, see_event);
	return r < 0 ? r : end_firsts(f);
}

int jfr_probe(const u8 *data, size_t n)
{
	return n >= 68 && !memcmp(data, "FLR\0", 4) ? 100 : 0;
}

static int set_period(struct jfr_reader *f)
{
	u32 cpu = profile_find_type(f->p, SAMPLE_TYPE_CPU);

	if (cpu == PROFILE_NONE)
		return 0;
	f->p->period_name = f->p->types[cpu].period_name;
	f->p->period_unit = f->p->types[cpu].period_unit;
	f->p->period = (s64)cpu_period(f);
	return 0;
}

/* What was read makes a profile; what was not is told. */
static int finish(struct jfr_reader *f, struct diag *reterr_diag)
{
	_cleanup_str_ struct str left_out = {};

	tell_left_out(f, &left_out);
	if (!f->n_read && left_out.n)
		return diag_set(reterr_diag, -EBADMSG, "JFR: none of its events can be read: %s",
				str_get(&left_out));
	if (left_out.n)
		(void)diag_set(reterr_diag, 0, "JFR: not read: %s", str_get(&left_out));
	profile_drop_empty_types(f->p);
	profile_derive_quality(f->p);
	return set_period(f);
}

static int read_chunks(struct jfr_reader *f, struct buf *b, struct diag *reterr_diag)
{
	for (u32 i = 0; buf_left(b); i++) {
		_cleanup_chunk_ struct jfr_chunk c = {};
		int r;

		if (i == JFR_MAX_CHUNKS)
			return diag_set(reterr_diag, -E2BIG, "JFR: more than %d chunks",
					JFR_MAX_CHUNKS);
		f->c = &c; /* borrowed until the end of the loop's body */
		r = jfr_chunk_open(b, &c, reterr_diag);
		if (r == 0 && (!f->only || c.start_ns > f->only->after_ns))
			r = read_chunk(f);
		f->c = NULL;
		if (r < 0)
			return r;
		f->last_ns = MAX(f->last_ns, c.start_ns);
	}
	return 0;
}

static int reader_init(struct jfr_reader *f, size_t n, struct diag *reterr_diag)
{
	int r;

	f->p = profile_create();
	r = f->p ? add_types(f->p) : -ENOMEM;
	if (r == 0)
		r = strtab_init(&f->left_out_names);
	if (r == 0)
		r = profile_add_string(f->p, PROCESS, strlen(PROCESS), &f->comm);
	return r == 0 && !n ? diag_set(reterr_diag, -EBADMSG, "JFR: empty") : r;
}

#define _cleanup_reader_ __attribute__((cleanup(reader_deinit)))

int jfr_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag)
{
	_cleanup_reader_ struct jfr_reader f = {};
	struct buf b = buf_of(data, n);
	int r = reader_init(&f, n, reterr_diag);

	if (r == 0)
		r = read_chunks(&f, &b, reterr_diag);
	if (r == 0)
		r = finish(&f, reterr_diag);
	if (r < 0)
		return r;
	*ret = take_ptr(f.p);
	return 0;
}

int profile_read_flight(const u8 *data, size_t n, const struct profile_flight *only,
			struct profile **ret, u64 *ret_last_ns, struct diag *reterr_diag)
{
	_cleanup_reader_ struct jfr_reader f = {.only = only};
	struct buf b = buf_of(data, n);
	int r = reader_init(&f, n, reterr_diag);

	if (r == 0)
		r = read_chunks(&f, &b, reterr_diag);
	if (r < 0)
		return r;
	/* All that is read has the same period. */
	f.p->period_name = f.p->types[VALUE_ALLOC_SAMPLE_BYTES].period_name;
	f.p->period_unit = f.p->types[VALUE_ALLOC_SAMPLE_BYTES].period_unit;
	*ret = take_ptr(f.p);
	*ret_last_ns = f.last_ns;
	return 0;
}
