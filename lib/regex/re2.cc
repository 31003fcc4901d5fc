/* SPDX-License-Identifier: Apache-2.0 */
#include "regex/re2.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <re2/re2.h>

struct re2_code {
	re2::RE2 code;

	re2_code(const char *pattern, const re2::RE2::Options &o) : code(pattern, o)
	{
	}
};

int re2_compile(const char *pattern, size_t max_bytes, char *ret_why, size_t n_why,
		struct re2_code **ret)
try {
	re2::RE2::Options o;

	o.set_max_mem(static_cast<int64_t>(max_bytes));
	o.set_dot_nl(true);
	o.set_never_capture(true);
	o.set_log_errors(false);
	re2_code *c = new re2_code(pattern, o);
	if (c->code.ok()) {
		*ret = c;
		return 0;
	}
	snprintf(ret_why, n_why, "%s", c->code.error().c_str());
	delete c;
	return -EINVAL;
} catch (const std::bad_alloc &) {
	return -ENOMEM;
}

void re2_free(struct re2_code *c)
{
	delete c;
}

size_t re2_size(const struct re2_code *c)
{
	return static_cast<size_t>(c->code.ProgramSize());
}

int re2_match(const struct re2_code *c, const char *text, size_t n, int whole)
try {
	return c->code.Match(re2::StringPiece(text, n), 0, n,
			     whole ? re2::RE2::ANCHOR_BOTH : re2::RE2::UNANCHORED, nullptr, 0);
} catch (const std::bad_alloc &) {
	return -ENOMEM;
}
