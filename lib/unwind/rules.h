/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/unwind: the distinct rules of one file, by index. */
#pragma once

#include "abi/unwind.h"
#include "base/types.h"
#include "base/vec.h"

enum { RULE_NONE, RULE_STOP, RULE_UNSUPPORTED, RULE_N_FIXED };

struct rules {
	vec(struct unwind_rule) list;
	u16 *slots;  /* owned; hash table of index + 1, 0 = empty */
	u32 n_slots; /* a power of two */
};

/* Creates the fixed rules: RULE_NONE, RULE_STOP, RULE_UNSUPPORTED. -ENOMEM. */
int rules_init(struct rules *r);
void rules_deinit(struct rules *r);
/* Returns the index of the rule, RULE_UNSUPPORTED if UNWIND_MAX_RULES or memory is used up. */
u16 rules_intern(struct rules *r, const struct unwind_rule *rule);
