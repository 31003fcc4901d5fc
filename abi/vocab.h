/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The vocabularies of abi/tbl as enums. Names and help texts for user space come from the same
 * tables through lib/base/vocab.h, so they cannot drift.
 */
#pragma once

enum frame_kind {
#define FRAME_KIND(id, ...) FRAME_##id,
#include "abi/tbl/frame_kind.tbl"
#undef FRAME_KIND
	FRAME_KIND_N
};

enum stop_reason {
#define STOP(id, ...) STOP_##id,
#include "abi/tbl/stop.tbl"
#undef STOP
	STOP_N
};

enum counter {
#define COUNTER(id, ...) COUNTER_##id,
#include "abi/tbl/counter.tbl"
#undef COUNTER
	COUNTER_N
};
