/* SPDX-License-Identifier: Apache-2.0 */
#include "server/store/sort.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define KEY_BYTES 20 /* of c: 0..3, of b: 4..11, of a: 12..19 */

static u8 key_byte(const struct sort_key *k, u32 i)
{
	if (i < 4)
		return (u8)(k->c >> (8 * i));
	if (i < 12)
		return (u8)(k->b >> (8 * (i - 4)));
	return (u8)(k->a >> (8 * (i - 12)));
}

static void sort_by_byte(const struct sort_key *from, struct sort_key *to, size_t n, u32 byte)
{
	size_t at[256] = {}, sum = 0;

	for (size_t i = 0; i < n; i++)
		at[key_byte(&from[i], byte)]++;
	for (size_t i = 0; i < 256; i++) {
		size_t here = at[i];

		at[i] = sum;
		sum += here;
	}
	for (size_t i = 0; i < n; i++)
		to[at[key_byte(&from[i], byte)]++] = from[i];
}

static bool key_less(const struct sort_key *x, const struct sort_key *y)
{
	if (x->a != y->a)
		return x->a < y->a;
	return x->b != y->b ? x->b < y->b : x->c < y->c;
}

int sort_keys(struct sort_key *keys, size_t n)
{
	_cleanup_free_ struct sort_key *other = NULL;
	struct sort_key *from = keys, *to, differ = {};
	bool sorted = true;

	for (size_t i = 1; i < n; i++) {
		differ.a |= keys[i].a ^ keys[0].a;
		differ.b |= keys[i].b ^ keys[0].b;
		differ.c |= keys[i].c ^ keys[0].c;
		sorted &= !key_less(&keys[i], &keys[i - 1]);
	}
	if (sorted)
		return 0;
	other = reallocarray(NULL, n, sizeof(*other));
	if (!other)
		return -ENOMEM;
	to = other;
	for (u32 byte = 0; byte < KEY_BYTES; byte++) {
		struct sort_key *swap = from;

		if (!key_byte(&differ, byte))
			continue;
		sort_by_byte(from, to, n, byte);
		from = to;
		to = swap;
	}
	if (from != keys)
		memcpy(keys, from, n * sizeof(*keys));
	return 0;
}
