/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of a tracepoint, which become attributes of its samples: where they are in the event's
 * record, from tracefs, and the text of what BPF has read of them. Pure functions.
 *
 * The layout is that of events/CATEGORY/NAME/format: Documentation/trace/events.rst of Linux, "Event
 * formats".
 */
#pragma once

#include "abi/sample.h"
#include "base/diag.h"
#include "base/types.h"

/* What the names of event attributes begin with, so that none is taken for the thread's own. */
#define FIELD_PREFIX "event."
#define FIELD_MAX_NAME (ATTRIBUTE_MAX_NAME + 1 - (sizeof(FIELD_PREFIX) - 1)) /* with its NUL */

struct source_field {
	char name[FIELD_MAX_NAME];
	bool is_signed, is_address; /* of numbers */
	struct sampler_field where;
};

/*
 * Finds a field by its name in the text of a format file. `is_syscall`: its category is
 * "syscalls", where pointers lead to the process's memory. -ENOENT: there is none; the diag lists
 * those that there are. -ENOTSUP: it is neither a number nor a text.
 */
int field_find(const char *format, const char *name, bool is_syscall, struct source_field *ret,
	       struct diag *reterr_diag);

/* Bytes that fields_to_named() writes at most. */
#define FIELDS_MAX_BYTES (SAMPLER_MAX_FIELDS * (2 + ATTRIBUTE_MAX_NAME + ATTRIBUTE_MAX_TEXT))
/* From ATTRIBUTES_FIELDS to ATTRIBUTES_NAMED: how many bytes. What breaks off ends it. */
u16 fields_to_named(const struct source_field *fields, u32 n_fields, const u8 *bytes, u32 n,
		    u8 ret[FIELDS_MAX_BYTES]);
