/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/types.h"

/*
 * True when a Rust v0 name (`_R…`) follows the grammar of RFC 2603 to its end, and takes a bounded
 * number of steps to read, back references included.
 */
bool rust_v0_is_harmless(const char *name);
