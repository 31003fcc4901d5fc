/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent believes of a parser: rows and rules that the walkers can follow. Whether they are
 * those of the file nobody can tell; wrong ones give wrong stacks of the processes that have it.
 */
#include "agent/parser/parser.h"

#define MAX_REG 31 /* of either machine */

bool parser_check_rows(const u32 *rows, u32 n, u32 n_rules)
{
	if (!n || n > UNWIND_PAGE_BYTES || rows[0] >> 16)
		return false;
	for (u32 i = 0; i < n; i++)
		if (rows[i] >> 16 >= UNWIND_PAGE_BYTES || (rows[i] & 0xffff) >= n_rules ||
		    (i && rows[i] >> 16 <= rows[i - 1] >> 16))
			return false;
	return true;
}

static bool is_rule(const struct unwind_rule *r)
{
	u32 max = r->cfa_op == UNWIND_CFA_GO ? UNWIND_GO_FRAME : MAX_REG;

	return r->cfa_op <= UNWIND_CFA_GO && r->cfa_reg <= max && r->ra_op <= UNWIND_RA_REG &&
	       r->fp_op <= UNWIND_FP_REG;
}

bool parser_check_rules(const struct unwind_rule *rules, u32 n, u32 first)
{
	if (first > UNWIND_MAX_RULES || n > UNWIND_MAX_RULES - first)
		return false;
	/* The walkers' "no rule" is number 0. */
	if (!first && (!n || rules[0].cfa_op != UNWIND_CFA_NONE))
		return false;
	for (u32 i = 0; i < n; i++)
		if (!is_rule(&rules[i]))
			return false;
	return true;
}
