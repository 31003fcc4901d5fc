/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libculprit-context: tells profilers outside of the process which service it is and which span
 * each of its threads works for. It writes OpenTelemetry's process context (OTEP 4719) and thread
 * context (OTEP 4947) into the process's own memory, where culprit and every other reader of these
 * find them; nothing is sent, and it costs a few stores when a span begins or ends.
 *
 * All functions may be called by any thread. Strings are UTF-8 and copied. Negative results are
 * errno values; a program that ignores them works as before.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What the process is: n attributes by OpenTelemetry's conventions, such as service.name and
 * deployment.environment.name, in place of those of the call before. A forked child publishes the
 * same. -E2BIG beyond 16 KiB, -ENOMEM.
 */
int culprit_context_process(const char *const *names, const char *const *values, size_t n);

/*
 * The calling thread works for this span from now on: ids as their bytes, in W3C's order; flags as
 * in traceparent. Whoever hands work to another thread calls it there. Nothing is nested: at the
 * end of an inner span enter the outer one again. Attributes of before are gone.
 */
void culprit_context_enter(const uint8_t trace_id[16], const uint8_t span_id[8], uint8_t flags);
/* It works for none. */
void culprit_context_leave(void);

/*
 * A number for the name of attributes of threads: the same for the same name, up to 255. -ENOSPC
 * when there are 256 already, -ENOMEM.
 */
int culprit_context_key(const char *name);
/*
 * Adds an attribute to the span that was entered; of two of one key the later counts. -ENOENT
 * without a span, -EINVAL a key that was not given out or n above 255, -ENOSPC when 612 bytes are
 * full, -ENOMEM.
 */
int culprit_context_attribute(int key, const char *value, size_t n);

#ifdef __cplusplus
}
#endif
