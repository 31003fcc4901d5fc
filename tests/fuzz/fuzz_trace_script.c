/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A script of the tracing language. What is refused must say where and why; what is accepted must
 * have a tree that can be walked without running out of stack, in which no parameter is left.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/trace_dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const values[] = {"12", "text", "-5"};
	static const char *const options[] = {"--depth=3"};
	static const struct trace_parameters p = {values, ARRAY_SIZE(values), options,
						  ARRAY_SIZE(options)};
	_cleanup_trace_script_ struct trace_script *s = NULL;
	_cleanup_str_ struct str out = {};
	const char *text = (const char *)data;
	struct diag d = {};

	/* Options that a script does not ask for are refused. */
	if (trace_parse("x.bt", text, size, size % 2 ? NULL : &p, &d, &s) < 0) {
		if (!d.text[0] || s)
			abort();
		trace_error_show("x.bt", text, size, d.text, &out);
		if (!out.n)
			abort();
		return 0;
	}
	if (!s->probes.n)
		abort();
	trace_script_dump(s, &out);
	trace_structs_dump(s, &out);
	if (memmem(out.data, out.n, "PARAMETER", 9) && !memmem(data, size, "PARAMETER", 9))
		abort();
	return 0;
}
