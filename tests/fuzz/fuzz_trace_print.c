/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a record of a script with a format of any bytes: {u8 n_format, format, then the record's
 * bytes}. Arguments of all kinds take turns; each kind is also printed alone, as text and as JSON.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "trace/trace.h"

#define MAX_ARGUMENTS 8

static const struct trace_type pair_field = {.kind = TRACE_INT, .bytes = 8};
static const struct trace_type half = {.kind = TRACE_INT, .bytes = 2, .is_signed = true};
static const struct trace_type *const pair[] = {&pair_field, &pair_field};
static const char *const names[] = {"first", "second"};
static const struct trace_type kinds[] = {
	{.kind = TRACE_INT, .bytes = 4, .is_signed = true},
	{.kind = TRACE_INT, .bytes = 8},
	{.kind = TRACE_STRING, .bytes = 16},
	{.kind = TRACE_BUFFER, .bytes = 16},
	{.kind = TRACE_BOOL},
	{.kind = TRACE_POINTER},
	{.kind = TRACE_TUPLE, .n = 2, .fields = (const struct trace_type **)pair},
	{.kind = TRACE_TUPLE,
	 .n = 2,
	 .fields = (const struct trace_type **)pair,
	 .names = (const char **)names},
	{.kind = TRACE_USTACK},
	{.kind = TRACE_KSYM},
	{.kind = TRACE_INET},
	{.kind = TRACE_MAC},
	{.kind = TRACE_PROBE},
	{.kind = TRACE_TIME},
	{.kind = TRACE_CGROUP},
	{.kind = TRACE_ERROR},
	{.kind = TRACE_SIGNAL},
	{.kind = TRACE_SYSCALL},
	{.kind = TRACE_VALUES, .n = 4, .bytes = 8, .of = &half},
	{.kind = TRACE_ENUM_NAME, .bytes = 4},
};

/* A record of n bytes, with its head in front. */
static void print(const struct trace_printer *p, u16 type, const u8 *bytes, size_t n)
{
	_cleanup_free_ u8 *record = malloc(sizeof(struct trace_record) + n);
	struct trace_record head = {.type = type};
	_cleanup_str_ struct str out = {}, err = {};
	struct trace_request request;

	if (!record)
		return;
	memcpy(record, &head, sizeof(head));
	if (n)
		memcpy(record + sizeof(head), bytes, n);
	(void)trace_print_record(p, record, sizeof(head) + n, &out, &err, &request);
	str_deinit(&request.command);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
	struct trace_text texts[] = {{"%H:%M.%f", 8}};
	struct trace_print prints[1] = {{.map = -1}};
	struct trace_type types[MAX_ARGUMENTS];
	u32 offsets[MAX_ARGUMENTS], n_format = n ? data[0] : 0;
	struct trace_format format = {.arguments = types, .offsets = offsets};
	struct trace_program program = {
		.formats = {.data = &format, .n = 1},
		.prints = {.data = prints, .n = 1},
		.texts = {.data = texts, .n = 1},
	};
	struct trace_printer printer = {.program = &program, .cpus = 1};
	struct diag d = {};

	if (n < 1 + (size_t)n_format)
		return 0;
	format.text = (struct trace_text){(const char *)data + 1, n_format};
	data += 1 + n_format;
	n -= 1 + n_format;
	for (u32 first = 0; first < sizeof(kinds) / sizeof(kinds[0]); first++) {
		u32 at = 0;

		for (format.n = 0; format.n < MAX_ARGUMENTS; format.n++) {
			types[format.n] =
				kinds[(first + format.n) % (sizeof(kinds) / sizeof(kinds[0]))];
			offsets[format.n] = at;
			at += trace_type_room(&types[format.n]);
			(void)trace_format_check(&format.text, types, format.n, &d);
			if (at > n)
				break;
		}
		print(&printer, TRACE_RECORD_PRINTF, data, n);
		print(&printer, TRACE_RECORD_SYSTEM, data, n);
		prints[0].type = kinds[first];
		print(&printer, TRACE_RECORD_PRINT, data, n);
		printer.json = !printer.json;
		print(&printer, TRACE_RECORD_PRINT, data, n);
	}
	return 0;
}
