/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/clickhouse.h"
#include <errno.h>

int ch_find_stacks(struct store *base, const char *service,
		   bool (*accept)(void *userdata, const char *name), void *userdata,
		   struct store_ids *ret, struct diag *reterr_diag)
{
	return store_find_stacks(base, service, accept, userdata, ret, reterr_diag);
}

int ch_name_frames(struct store *base, const char *build_id,
		   int (*name)(void *userdata, u64 address, struct profile *into, u32 *ret_frames,
			       size_t max),
		   void *userdata, struct diag *reterr_diag)
{
	return diag_set(reterr_diag, -EOPNOTSUPP, "not yet");
}
