/* SPDX-License-Identifier: Apache-2.0 */
/* A server's answer to an agent: what was read keeps to the limits, and is the same afterwards. */
#include "base/cleanup.h"
#include "control/control.h"
#include "fuzz_profile.h"

static void check_bounds(const struct control_response *r)
{
	MUST(r->tasks.n <= CONTROL_MAX_TASKS && r->keeps.n <= CONTROL_MAX_KEEPS);
	vec_foreach (&r->tasks, t)
		MUST(*t->id && memchr(t->id, 0, sizeof(t->id)) && t->period_us >= 1000 &&
		     *t->service && memchr(t->service, 0, sizeof(t->service)));
	vec_foreach (&r->keeps, k)
		MUST(*k->task && memchr(k->task, 0, sizeof(k->task)) && k->start_ns <= k->end_ns &&
		     k->reason < CONTROL_REASON_N);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_str_ struct str once = {}, twice = {};
	struct control_response r, again;

	if (control_response_decode(data, size, &r, NULL) < 0)
		return 0;
	check_bounds(&r);
	MUST(control_response_encode(&r, &once) == 0);
	MUST(control_response_decode((const u8 *)str_get(&once), once.n, &again, NULL) == 0);
	MUST(control_response_encode(&again, &twice) == 0);
	MUST(once.n == twice.n && !memcmp(str_get(&once), str_get(&twice), once.n));
	control_response_deinit(&again);
	control_response_deinit(&r);
	return 0;
}
