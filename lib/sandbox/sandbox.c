/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <sys/prctl.h>

#include "base/log.h"

/* LeakSanitizer traces the process at its end, which is what the filter is there to forbid. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_SANITIZER 1
#else
#define HAS_SANITIZER 0
#endif

int sandbox_enter(const struct sandbox_options *o, struct diag *reterr_diag)
{
	int r;

	if (HAS_SANITIZER) {
		log_debug("sandbox: none, because this build has sanitizers");
		return 0;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return diag_set(reterr_diag, -EPERM, "cannot give up new privileges");
	r = sandbox_restrict_files(o, reterr_diag);
	return r < 0 ? r : sandbox_filter_calls(o, reterr_diag);
}
