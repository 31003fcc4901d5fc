/* SPDX-License-Identifier: Apache-2.0 */
/* What a user asks of a measurement: names, defaults and limits. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/members.h"
#include "server/measurements/internal.h"

#define MAX_SLOW_NS 3600000000000ULL

const struct measurement_spec measurement_defaults = {
	.service = "*",
	.duration_ms = 30000,
	.budget_percent = 1,
};

static int check_file(const struct measurement_spec *s, struct diag *reterr_diag)
{
	if (!strcmp(s->service, "*") && !s->file[0])
		return diag_set(reterr_diag, -EINVAL,
				"file: which binary? Without a service the file must be given");
	if (s->file[0] == '[' && strcmp(s->file, CONTROL_KERNEL) != 0)
		return diag_set(
			reterr_diag, -EINVAL,
			"file: functions of %.60s cannot be measured: this code has no file",
			s->file);
	return 0;
}

int measurement_spec_check(const struct measurement_spec *s, struct diag *reterr_diag)
{
	if (!s->service[0])
		return diag_set(reterr_diag, -EINVAL,
				"service: of which? a service.name, exactly, or *");
	if (!s->function[0])
		return diag_set(reterr_diag, -EINVAL, "function: which? its name, exactly");
	if (!control_is_function(s->function))
		return diag_set(reterr_diag, -EINVAL,
				"function: the name of one function, not a pattern");
	if (s->duration_ms < CONTROL_MIN_MEASURE_MS || s->duration_ms > CONTROL_MAX_MEASURE_MS)
		return diag_set(reterr_diag, -EINVAL, "duration_ms: 1000 to 600000 (10 minutes)");
	if (!(s->budget_percent >= MEASUREMENT_MIN_BUDGET &&
	      s->budget_percent <= CONTROL_MAX_BUDGET))
		return diag_set(reterr_diag, -EINVAL, "budget_percent: 0.01 to 10, of one CPU");
	return check_file(s, reterr_diag);
}

int measurement_spec_read(json_t *object, struct measurement_spec *ret, struct diag *reterr_diag)
{
	static const char *const members[] = {
		"service", "function", "file", "duration_ms", "slow_ns", "budget_percent",
	};
	struct measurement_spec s = measurement_defaults;
	int r;

	if (!json_is_object(object))
		return diag_set(reterr_diag, -EINVAL,
				"a measurement is an object: {\"service\": \"shop\", \"function\": "
				"\"main\"}");
	r = members_check(object, members, ARRAY_SIZE(members), "a measurement", reterr_diag);
	if (r == 0)
		r = members_text(object, "service", s.service, sizeof(s.service), reterr_diag);
	if (r == 0)
		r = members_text(object, "function", s.function, sizeof(s.function), reterr_diag);
	if (r == 0)
		r = members_text(object, "file", s.file, sizeof(s.file), reterr_diag);
	if (r == 0)
		r = members_u64(object, "duration_ms", CONTROL_MAX_MEASURE_MS, &s.duration_ms,
				reterr_diag);
	if (r == 0)
		r = members_u64(object, "slow_ns", MAX_SLOW_NS, &s.slow_ns, reterr_diag);
	if (r == 0)
		r = members_number(object, "budget_percent", 100, &s.budget_percent, reterr_diag);
	if (r == -ENOENT)
		r = 0;
	if (r == 0)
		*ret = s;
	return r;
}
