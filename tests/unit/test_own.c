/* SPDX-License-Identifier: Apache-2.0 */
/* Whose code a frame is: the cases of tests/owners.tbl, which the page's tests decide, too. */
#include <criterion/criterion.h>
#include <string.h>

#include "abi/vocab.h"
#include "base/cleanup.h"
#include "base/vocab.h"
#include "server/api/own.h"

static const struct {
	const char *kind, *name, *file, *binary, *owner;
} cases[] = {
#define OWNED(kind, name, file, binary, owner) {kind, name, file, binary, owner},
#include "../owners.tbl"
#undef OWNED
};

static u8 kind_of(const char *name)
{
	u8 k = 0;

	while (k < FRAME_KIND_N && strcmp(vocab_frame_kind(k)->name, name) != 0)
		k++;
	cr_assert_lt(k, FRAME_KIND_N, "no such kind: %s", name);
	return k;
}

Test(own, cases_of_the_table)
{
	_cleanup_own_ struct own *o = NULL;

	cr_assert_eq(own_create(&o), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool own = own_is(o, kind_of(cases[i].kind), cases[i].name, cases[i].file,
				  cases[i].binary);

		cr_expect_eq(own, !strcmp(cases[i].owner, "own"), "%s %s in %s, %s: %s",
			     cases[i].kind, cases[i].name, cases[i].file, cases[i].binary,
			     cases[i].owner);
	}
}
