/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold for every OTLP request that the reader accepts: its profiles are sound; written as
 * OTLP again, they follow the rules of otlp_rules.h and read back as the same folded text.
 */
#pragma once

#include "../unit/otlp_rules.h"
#include "fuzz_profile.h"
#include "otlp/otlp.h"

#define FUZZ_MAX_BYTES ((size_t)32 << 20)

static inline int otlp_write_one(const struct profile *p, const struct profile_write_options *o,
				 struct str *out, struct diag *reterr_diag)
{
	int r = otlp_profiles_encode(p, NULL, out, reterr_diag);

	if (r == 0)
		MUST(!otlp_rules((const u8 *)out->data, out->n));
	return r;
}

static inline int otlp_read_one(const u8 *data, size_t n, struct profile **ret,
				struct diag *reterr_diag)
{
	struct otlp_profiles got = {};
	int r = otlp_profiles_decode(data, n, (size_t)1 << 30, &got, reterr_diag);

	MUST(r == 0 && !got.rejected && got.profiles.n == 1);
	*ret = take_ptr(got.profiles.data[0]);
	otlp_profiles_deinit(&got);
	return 0;
}

static inline void check_request(struct otlp_profiles *got)
{
	vec_foreach (&got->profiles, p) {
		bool positive = true;

		check_views(*p, check_ids(*p));
		for (size_t i = 0; i < (*p)->n_samples; i++)
			positive &= profile_sample(*p, i)->value[0] > 0;
		/* OTLP does not send a value of 0, and folded text has no line for a sum of 0. */
		if (positive)
			check_way(*p, otlp_write_one, otlp_read_one, true);
		check_way(*p, pprof_write, NULL, false);
	}
	otlp_profiles_deinit(got);
}
