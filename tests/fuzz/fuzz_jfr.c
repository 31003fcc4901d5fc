/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings of Flight Recorder, as users have them, and as culprit takes them from JVMs. */
#include "fuzz_profile.h"

static void check_flight(const uint8_t *data, size_t size, bool by_tlab)
{
	static const u32 tids[] = {1, 2, 42};
	const struct profile_flight only = {
		.after_ns = by_tlab, .by_tlab = by_tlab, .tids = tids, .n_tids = ARRAY_SIZE(tids)};
	struct profile *p = NULL;
	u64 last_ns = 0;

	if (profile_read_flight(data, size, &only, &p, &last_ns, NULL) == 0)
		(void)check_ids(p);
	profile_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_reader(jfr_read, jfr_probe, data, size);
	check_flight(data, size, false);
	check_flight(data, size, true);
	return 0;
}
