/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vocab.h"

#include <string.h>

static const struct vocab_frame_kind frame_kinds[] = {
#define FRAME_KIND(id, name, suffix, class, otlp, hue, chroma, help)                               \
	{name, suffix, FRAME_CLASS_##class, otlp, hue, chroma, help},
#include "abi/tbl/frame_kind.tbl"
#undef FRAME_KIND
	{.name = "?", .suffix = "", .otlp = "?", .help = "?"},
};

static const struct vocab_stop stops[] = {
#define STOP(id, text, help) {text, help},
#include "abi/tbl/stop.tbl"
#undef STOP
	{"?", "?"},
};

static const struct vocab_wait waits[] = {
#define WAIT(id, name, light, dark, help) {name, light, help},
#include "abi/tbl/wait.tbl"
#undef WAIT
	{"?", "#ffffff", "?"},
};

static const struct vocab_task tasks[] = {
#define TASK(id, name, plural, label, wait) {name, plural, "[" name "]", label, WAIT_##wait},
#include "abi/tbl/task.tbl"
#undef TASK
	{"task", "tasks", "[task]", "task", WAIT_OTHER},
};

static const struct vocab_counter counters[] = {
#define COUNTER(id, name, unit, loss, help) {name, unit, COUNTER_LOSS_##loss, help},
#include "abi/tbl/counter.tbl"
#undef COUNTER
	{"?", "", COUNTER_LOSS_NONE, "?"},
};

static const char *const losses[] = {
#define COUNTER_LOSS(id, name, help) name,
#include "abi/tbl/counter_loss.tbl"
#undef COUNTER_LOSS
};

static const struct vocab_sample_type sample_types[] = {
#define SAMPLE_TYPE(id, name, unit, profile, label, rate, adds, is_cpu, help)                      \
	{name, unit, profile, label, rate, SAMPLE_ADDS_##adds, is_cpu, help},
#include "abi/tbl/sample_type.tbl"
#undef SAMPLE_TYPE
	{"?", "", "?", "?", "?", SAMPLE_ADDS_OVER_TIME, false, "?"},
};

static const struct {
	const char *name;
	enum sample_type type;
} events[] = {
#define SOURCE(id, name, program, type, ...) {name, SAMPLE_TYPE_##type},
#include "abi/tbl/source.tbl"
#undef SOURCE
};

static const struct {
	const char *name;
	u64 per_second;
} units[] = {
#define UNIT(id, name, per_second) {name, per_second},
#include "abi/tbl/unit.tbl"
#undef UNIT
};

static const struct vocab_export_drop export_drops[] = {
#define EXPORT_DROP(id, name, help) {name, help},
#include "abi/tbl/export_drop.tbl"
#undef EXPORT_DROP
	{"?", "?"},
};

const struct vocab_frame_kind *vocab_frame_kind(unsigned int kind)
{
	return &frame_kinds[kind < FRAME_KIND_N ? kind : FRAME_KIND_N];
}

const struct vocab_stop *vocab_stop(unsigned int stop)
{
	return &stops[stop < STOP_N ? stop : STOP_N];
}

const struct vocab_wait *vocab_wait(unsigned int wait)
{
	return &waits[wait < WAIT_N ? wait : WAIT_N];
}

const struct vocab_task *vocab_task(unsigned int task)
{
	return &tasks[task < TASK_N ? task : TASK_N];
}

enum wait vocab_wait_by_name(const char *name, size_t n)
{
	for (enum wait w = WAIT_NONE + 1; w < WAIT_N; w++)
		if (strlen(waits[w].name) == n && !memcmp(waits[w].name, name, n))
			return w;
	return WAIT_NONE;
}

enum wait vocab_wait_by_frame(const char *name, size_t n)
{
	bool bracketed = n > 2 && name[0] == '[' && name[n - 1] == ']';

	return bracketed ? vocab_wait_by_name(name + 1, n - 2) : WAIT_NONE;
}

const struct vocab_counter *vocab_counter(unsigned int counter)
{
	return &counters[counter < COUNTER_N ? counter : COUNTER_N];
}

const char *vocab_counter_loss(enum counter_loss loss)
{
	return losses[loss];
}

const struct vocab_sample_type *vocab_sample_type(unsigned int type)
{
	return &sample_types[type < SAMPLE_TYPE_N ? type : SAMPLE_TYPE_N];
}

const struct vocab_export_drop *vocab_export_drop(unsigned int drop)
{
	return &export_drops[drop < EXPORT_DROP_N ? drop : EXPORT_DROP_N];
}

static bool same_unit(const char *a, const char *b)
{
	return !strcmp(a, b) || (vocab_per_second(a) && vocab_per_second(b));
}

enum sample_type vocab_find_sample_type(const char *profile, const char *name, const char *unit)
{
	for (unsigned int i = 0; i < SAMPLE_TYPE_N; i++) {
		const struct vocab_sample_type *t = &sample_types[i];

		if (!strcmp(t->name, name) && same_unit(t->unit, unit) &&
		    (!profile || !strcmp(t->profile, profile)))
			return (enum sample_type)i;
	}
	return SAMPLE_TYPE_N;
}

enum counter vocab_find_counter(const char *name)
{
	unsigned int i = 0;

	while (i < COUNTER_N && strcmp(counters[i].name, name) != 0)
		i++;
	return (enum counter)i;
}

enum export_drop vocab_find_export_drop(const char *name)
{
	unsigned int i = 0;

	while (i < EXPORT_DROP_N && strcmp(export_drops[i].name, name) != 0)
		i++;
	return (enum export_drop)i;
}

enum sample_type vocab_find_event(const char *event)
{
	size_t n = strcspn(event, ":"); /* what follows are perf's modifiers */

	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (strlen(events[i].name) == n && !memcmp(events[i].name, event, n))
			return events[i].type;
	return SAMPLE_TYPE_N;
}

const char *vocab_unit(enum unit unit)
{
	return units[unit].name;
}

u64 vocab_per_second(const char *unit)
{
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(units[i].name, unit))
			return units[i].per_second;
	return 0;
}

const char *vocab_profile_group(const struct vocab_value_type *types, size_t n)
{
	const struct vocab_sample_type *samples = vocab_sample_type(SAMPLE_TYPE_SAMPLES);
	const char *first = NULL;

	for (size_t i = 0; i < n; i++) {
		enum sample_type type;

		if (!types[i].name[0] || !strcmp(types[i].name, samples->name))
			continue;
		type = vocab_find_sample_type(NULL, types[i].name, types[i].unit);
		if (type < SAMPLE_TYPE_N)
			return sample_types[type].profile;
		if (!first)
			first = types[i].name;
	}
	return first ? first : samples->profile;
}
