/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libculprit-context publishes, for profilers in other processes, which service this process is and
 * which span each of its threads works for. It writes OpenTelemetry's process context (OTEP 4719)
 * and thread context (OTEP 4947) into the memory of the process, where culprit and other readers of
 * these formats find them. The library sends nothing; entering and leaving a span costs a few
 * stores.
 *
 * Every function may be called from any thread at any time, but not from a signal handler. The
 * library copies all strings, which are UTF-8, and owns all memory that it allocates. Functions
 * that return int return a negative errno value on failure and then change nothing; ignoring a
 * failure is safe.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Publishes the attributes of the process: n names with their values, following OpenTelemetry's
 * semantic conventions, such as service.name and deployment.environment.name. Replaces the
 * attributes of an earlier call. A forked child publishes the same attributes. Returns 0; -E2BIG if
 * they need more than 16 KiB, -ENOMEM.
 */
int culprit_context_process(const char *const *names, const char *const *values, size_t n);

/*
 * The calling thread works for this span from now on, until it calls culprit_context_enter() or
 * culprit_context_leave() again. The ids are bytes in the order of W3C's traceparent; `flags` is
 * its trace-flags byte. Spans do not nest here: at the end of an inner span, enter the outer one
 * again. When work moves to another thread, that thread calls this function. Attributes of the
 * previous span are removed.
 */
void culprit_context_enter(const uint8_t trace_id[16], const uint8_t span_id[8], uint8_t flags);
/* The calling thread works for no span from now on. */
void culprit_context_leave(void);

/*
 * Returns the key, 0 to 255, for an attribute name; the same key for the same name in all threads.
 * -ENOSPC when 256 names have keys, -ENOMEM.
 */
int culprit_context_key(const char *name);
/*
 * Adds an attribute to the span that the calling thread entered: n bytes of UTF-8 at `value`, at
 * most 255. If a key occurs twice the later value counts. Returns 0; -ENOENT without a span,
 * -EINVAL for an unknown key or n above 255, -ENOSPC when the 612 bytes of a record are full,
 * -ENOMEM.
 */
int culprit_context_attribute(int key, const char *value, size_t n);

#ifdef __cplusplus
}
#endif
