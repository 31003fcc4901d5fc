/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reader and writer of pprof agree on, beyond the format: see doc/format/pprof.md.
 * Comments that begin with "culprit." carry what the format has no field for; labels carry who ran.
 */
#pragma once

#include "base/types.h"

#define PPROF_COMMENT_QUALITY "culprit.quality: "
#define PPROF_QUALITY_FORMAT                                                                       \
	"samples=%llu lost=%llu truncated=%llu unknown=%llu frames=%llu user_stacks=%llu"          \
	" self=%llu"
#define PPROF_COMMENT_TITLE "culprit.title: "
/* "3=kernel 5=jit": mapping id and the name of the frame kind, where the path does not tell. */
#define PPROF_COMMENT_KINDS "culprit.kinds: "

#define PPROF_LABEL_COMM "comm"
#define PPROF_LABEL_THREAD "thread"
#define PPROF_LABEL_PID "pid"
#define PPROF_LABEL_TID "tid"
/* W3C ids in lower-case hex. */
#define PPROF_LABEL_TRACE "trace_id"
#define PPROF_LABEL_SPAN "span_id"

/* A label that says who ran or for which span; the others are attributes. */
bool pprof_label_is_ours(const char *key);
