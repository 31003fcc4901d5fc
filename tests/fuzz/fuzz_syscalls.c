/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a call whose arguments, result and memory are any bytes, as text and as JSON.
 *
 *	bytes 0, 1	its slot
 *	rest		a struct syscalls_call from its start on; what is missing is 0
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/syscalls/internal.h"
#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A line has one end, and no byte that a terminal would obey. */
static void check_line(const struct str *line)
{
	if (!line->n || line->data[line->n - 1] != '\n')
		abort();
	for (size_t i = 0; i + 1 < line->n; i++)
		if ((u8)line->data[i] < 32 || line->data[i] == 127)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct syscalls_table *table;
	_cleanup_str_ struct str text = {}, json = {};
	struct syscalls_call c = {};

	if (!table && syscalls_table_create(&table) < 0)
		abort();
	if (size < 2)
		return 0;
	memcpy(&c, data + 2, size - 2 < sizeof(c) ? size - 2 : sizeof(c));
	c.slot = (u32)data[0] | (u32)data[1] << 8;
	c.n = c.n < SYSCALLS_PIECES ? c.n : SYSCALLS_PIECES; /* as session.c does */
	syscalls_print_text(table, &c, data[0] & 1, &text);
	syscalls_print_json(table, &c, &json);
	check_line(&text);
	check_line(&json);
	return 0;
}
