/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agent/tracer reads of foreign files.
 *
 *	byte 0	'n': a section of USDT notes; 'x', 'a': operands of a USDT probe on x86-64, on
 *		arm64; 'f': a tracepoint's format file
 *	rest	it
 */
#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tracer/internal.h"
#include "agent/tracer/usdt.h"
#include "base/arena.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int find_symbol(void *arg, const char *name, u64 *ret)
{
	(void)arg;
	*ret = strlen(name);
	return *ret ? 0 : -ENOENT;
}

/* All arguments are of the kinds that program.h knows, and name registers that exist. */
static void check_arguments(const char *text, u16 machine)
{
	const struct usdt_probe p = {.arguments = text, .svma = 0x1000};
	struct trace_usdt_argument got[USDT_MAX_ARGUMENTS];
	u32 n = usdt_arguments(&p, machine, find_symbol, NULL, got);
	u8 registers = machine == EM_X86_64 ? 21 : 34;

	if (n > USDT_MAX_ARGUMENTS)
		abort();
	for (u32 i = 0; i < n; i++) {
		u32 bytes = (u32)abs(got[i].bytes);

		if ((got[i].kind > 3 && got[i].kind != USDT_UNREADABLE) ||
		    got[i].base >= registers || got[i].index >= registers ||
		    (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8))
			abort();
	}
}

static void check_notes(const uint8_t *data, size_t size)
{
	usdt_probes probes = {};

	(void)usdt_parse(buf_of(data, size), 0x1000, &probes);
	vec_foreach (&probes, p) {
		check_arguments(p->arguments, EM_X86_64);
		check_arguments(p->arguments, EM_AARCH64);
		if (strlen(p->provider) + strlen(p->name) > size)
			abort();
	}
	vec_deinit(&probes);
}

static void check_format(const char *text)
{
	struct arena a = ARENA_INIT(16 << 20);
	struct trace_field *fields;
	u32 n;

	if (tracer_fields_parse(text, &a, &fields, &n) == 0)
		for (u32 i = 0; i < n; i++)
			if (!fields[i].name[0] || strlen(fields[i].type) > strlen(text))
				abort();
	arena_deinit(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (!size)
		return 0;
	if (data[0] == 'n') {
		check_notes(data + 1, size - 1);
		return 0;
	}
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] == 'f')
		check_format(text);
	else
		check_arguments(text, data[0] == 'x' ? EM_X86_64 : EM_AARCH64);
	free(text);
	return 0;
}
