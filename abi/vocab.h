/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The vocabularies of abi/tbl as enums. lib/base/vocab.h makes names and help texts for user space
 * from the same tables, so the enums and the texts agree.
 */
#pragma once

/* Classes of frame kinds, for outputs that know fewer kinds. */
enum frame_class {
	FRAME_CLASS_UNKNOWN,
	FRAME_CLASS_KERNEL,
	FRAME_CLASS_NATIVE,
	FRAME_CLASS_MANAGED, /* code of a language runtime, interpreted or compiled */
	FRAME_CLASS_NOTE,    /* not code */
};

enum frame_kind {
#define FRAME_KIND(id, ...) FRAME_##id,
#include "abi/tbl/frame_kind.tbl"
#undef FRAME_KIND
	FRAME_KIND_N
};

/* What a thread waits for. */
enum wait {
#define WAIT(id, ...) WAIT_##id,
#include "abi/tbl/wait.tbl"
#undef WAIT
	WAIT_N
};

/* A task of a runtime that waits without a thread. */
enum task {
#define TASK(id, ...) TASK_##id,
#include "abi/tbl/task.tbl"
#undef TASK
	TASK_N
};

enum stop_reason {
#define STOP(id, ...) STOP_##id,
#include "abi/tbl/stop.tbl"
#undef STOP
	STOP_N
};

enum unit {
#define UNIT(id, ...) UNIT_##id,
#include "abi/tbl/unit.tbl"
#undef UNIT
	UNIT_N
};

/* How values of a type are aggregated over time. */
enum sample_adds {
	SAMPLE_ADDS_OVER_TIME, /* values of two periods add up */
	SAMPLE_ADDS_AT_MOMENT, /* each value is a state: views show the mean over time */
};

enum sample_type {
#define SAMPLE_TYPE(id, ...) SAMPLE_TYPE_##id,
#include "abi/tbl/sample_type.tbl"
#undef SAMPLE_TYPE
	SAMPLE_TYPE_N
};

/* What a profile lacks for each event that a counter counts. */
enum counter_loss {
#define COUNTER_LOSS(id, ...) COUNTER_LOSS_##id,
#include "abi/tbl/counter_loss.tbl"
#undef COUNTER_LOSS
	COUNTER_LOSS_N
};

enum counter {
#define COUNTER(id, ...) COUNTER_##id,
#include "abi/tbl/counter.tbl"
#undef COUNTER
	COUNTER_N
};

/* Why an exporter dropped a profile. */
enum export_drop {
#define EXPORT_DROP(id, ...) EXPORT_DROP_##id,
#include "abi/tbl/export_drop.tbl"
#undef EXPORT_DROP
	EXPORT_DROP_N
};
