/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of a tracepoint that become attributes of its samples: finds their places in the event's
 * record from its format file in tracefs, and converts the bytes that BPF has read to text. Pure
 * functions.
 *
 * events/CATEGORY/NAME/format is described in Documentation/trace/events.rst of Linux, "Event
 * formats".
 */
#pragma once

#include "abi/sample.h"
#include "base/diag.h"
#include "base/types.h"

/* Prefix of event attributes, which distinguishes them from attributes of the thread. */
#define FIELD_PREFIX "event."
#define FIELD_MAX_NAME (ATTRIBUTE_MAX_NAME + 1 - (sizeof(FIELD_PREFIX) - 1)) /* with its NUL */

struct source_field {
	char name[FIELD_MAX_NAME];
	bool is_signed, is_address; /* for numbers */
	struct sampler_field where;
};

/*
 * Finds a field by its name in the text of a format file. `is_syscall`: its category is
 * "syscalls", where pointers lead to the process's memory. -ENOENT: there is none; the diag lists
 * the existing ones. -ENOTSUP: it is neither a number nor a text.
 */
int field_find(const char *format, const char *name, bool is_syscall, struct source_field *ret,
	       struct diag *reterr_diag);

/* The most bytes that fields_to_named() writes. */
#define FIELDS_MAX_BYTES (SAMPLER_MAX_FIELDS * (2 + ATTRIBUTE_MAX_NAME + ATTRIBUTE_MAX_TEXT))
/*
 * Converts attributes from ATTRIBUTES_FIELDS to ATTRIBUTES_NAMED. Returns the number of bytes. An
 * incomplete attribute ends the conversion.
 */
u16 fields_to_named(const struct source_field *fields, u32 n_fields, const u8 *bytes, u32 n,
		    u8 ret[FIELDS_MAX_BYTES]);
/*
 * Adds an attribute to `n` bytes of ATTRIBUTES_NAMED, and returns their new number. What is too
 * long is cut off; an attribute for which there is no room is left out.
 */
u16 fields_add_named(u8 ret[FIELDS_MAX_BYTES], u16 n, const char *name, const char *value);
