/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 256

static u32 rule_hash(const struct unwind_rule *rule)
{
	u64 half[2], h;

	memcpy(half, rule, sizeof(half));
	h = (half[0] ^ (half[1] << 29 | half[1] >> 35)) * 0x9e3779b97f4a7c15ULL;
	return (u32)(h >> 32);
}
_Static_assert(sizeof(struct unwind_rule) == 16, "rule_hash");

static u32 find_slot(const struct rules *r, const struct unwind_rule *rule)
{
	u32 i = rule_hash(rule) & (r->n_slots - 1);

	while (r->slots[i] && memcmp(&r->list.data[r->slots[i] - 1], rule, sizeof(*rule)))
		i = (i + 1) & (r->n_slots - 1);
	return i;
}

static int grow_slots(struct rules *r)
{
	u32 n = r->n_slots ? r->n_slots * 2 : FIRST_SLOTS;
	u16 *slots = calloc(n, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(r->slots);
	r->slots = slots;
	r->n_slots = n;
	for (size_t i = 0; i < r->list.n; i++)
		slots[find_slot(r, &r->list.data[i])] = (u16)(i + 1);
	return 0;
}

u16 rules_intern(struct rules *r, const struct unwind_rule *rule)
{
	u32 slot = find_slot(r, rule);

	if (r->slots[slot])
		return r->slots[slot] - 1;
	/* A slot holds index + 1, which must fit. */
	if (r->list.n >= UNWIND_MAX_RULES)
		return RULE_UNSUPPORTED;
	if (r->list.n * 2 >= r->n_slots) {
		if (grow_slots(r) < 0)
			return RULE_UNSUPPORTED;
		slot = find_slot(r, rule);
	}
	if (vec_push(&r->list, *rule) < 0)
		return RULE_UNSUPPORTED;
	r->slots[slot] = (u16)r->list.n;
	return (u16)(r->list.n - 1);
}

int rules_init(struct rules *r)
{
	static const struct unwind_rule fixed[RULE_N_FIXED] = {
		[RULE_NONE] = {.cfa_op = UNWIND_CFA_NONE},
		[RULE_STOP] = {.cfa_op = UNWIND_CFA_STOP},
		[RULE_UNSUPPORTED] = {.cfa_op = UNWIND_CFA_UNSUPPORTED},
	};

	*r = (struct rules){};
	if (vec_reserve(&r->list, 16) < 0 || grow_slots(r) < 0) {
		rules_deinit(r);
		return -ENOMEM;
	}
	for (u32 i = 0; i < RULE_N_FIXED; i++)
		(void)rules_intern(r, &fixed[i]);
	return 0;
}

void rules_deinit(struct rules *r)
{
	vec_deinit(&r->list);
	free(r->slots);
	r->slots = NULL;
}
