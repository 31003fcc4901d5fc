/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "server/store/sqlite.h"

int sq_maintain(struct store *base, u64 now_ms, struct diag *reterr_diag)
{
	return 0;
}
