/* SPDX-License-Identifier: Apache-2.0 */
#include <capstone/capstone.h>

#include "unwind/version.h"

const char unwind_version[UNWIND_VERSION_BYTES + 1] =
#include "unwind_version.inc"
	;

u32 unwind_disassembler(void)
{
	return (u32)cs_version(NULL, NULL);
}
