/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's question: what was read keeps to the limits, and is the same afterwards. */
#include "base/cleanup.h"
#include "control/control.h"
#include "fuzz_profile.h"

static void check_bounds(const struct control_request *r)
{
	MUST(r->tasks.n <= CONTROL_MAX_TASKS && r->kept.n <= CONTROL_MAX_KEEPS);
	MUST(memchr(r->host, 0, sizeof(r->host)) && memchr(r->version, 0, sizeof(r->version)));
	vec_foreach (&r->tasks, t)
		MUST(*t->id && memchr(t->id, 0, sizeof(t->id)) && t->state < CONTROL_STATE_N &&
		     memchr(t->reason, 0, sizeof(t->reason)));
	vec_foreach (&r->kept, k)
		MUST(*k->task && memchr(k->task, 0, sizeof(k->task)) &&
		     k->outcome < CONTROL_OUTCOME_N);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_str_ struct str once = {}, twice = {};
	struct control_request r, again;

	if (control_request_decode(data, size, &r, NULL) < 0)
		return 0;
	check_bounds(&r);
	MUST(control_request_encode(&r, &once) == 0);
	MUST(control_request_decode((const u8 *)str_get(&once), once.n, &again, NULL) == 0);
	MUST(control_request_encode(&again, &twice) == 0);
	MUST(once.n == twice.n && !memcmp(str_get(&once), str_get(&twice), once.n));
	control_request_deinit(&again);
	control_request_deinit(&r);
	return 0;
}
