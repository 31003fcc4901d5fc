/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that were compiled ahead of time (ReadyToRun). CoreCLR's ReadyToRunInfo of a module has
 * the array of the image's functions, and a hash table of the methods that were prepared to run, by
 * the address of their code (src/coreclr/vm/readytoruninfo.h, hash.h).
 *
 * The offsets of these fields are found by their content, in the first image that is met.
 */
#include <errno.h>
#include <string.h>

#include "agent/runtime/dotnet/dotnet.h"

#define MODULE_WORDS 256
#define INFO_WORDS 96
#define MAX_FUNCTIONS (1U << 22)
#define MAGIC 0x00525452U /* "RTR", at the start of a ReadyToRun header */
/* Offset of the header's pointer in the info, the same in all versions. */
#define INFO_HEADER 16

#define BUCKET_SLOTS 4
#define MAX_BUCKETS (1U << 23)
#define MAX_TRIES 64
#define COLLISION (1ULL << 63) /* of a bucket's first value: another bucket may have the key */
/* How many functions a method's last funclet may be behind the method's start. */
#define MAX_FUNCLETS 256

struct bucket {
	u64 keys[BUCKET_SLOTS];
	u64 values[BUCKET_SLOTS];
};

/* ---- learning ---- */

static bool is_info(const struct dotnet_reader *r, u64 at, u64 module)
{
	bool failed = false;
	u64 words[3];

	if (at < 4096 || at & 7 || runtime_read(r->m, at, words, sizeof(words)) < 0)
		return false;
	return (!module || words[0] == module) && words[INFO_HEADER / 8] >= 4096 &&
	       runtime_u32(r->m, words[INFO_HEADER / 8], &failed) == MAGIC && !failed;
}

static bool are_functions(const struct dotnet_reader *r, const struct dotnet_range *range, u64 at,
			  u32 n)
{
	u64 size = range->end - range->begin;
	struct dotnet_function first, last;

	return at > range->begin && at < range->end && !(at & 3) && n > 1 && n < MAX_FUNCTIONS &&
	       (u64)n * sizeof(first) < range->end - at &&
	       runtime_read(r->m, at, &first, sizeof(first)) == 0 &&
	       runtime_read(r->m, at + (u64)(n - 1) * sizeof(last), &last, sizeof(last)) == 0 &&
	       first.begin && first.begin < first.end && first.end <= last.begin &&
	       last.begin < last.end && last.end <= size && first.unwind < size &&
	       last.unwind < size;
}

/* Whether these are the buckets of a table whose keys are addresses in the image. */
static bool are_methods(const struct dotnet_reader *r, const struct dotnet_range *range, u64 at)
{
	struct bucket buckets[5];
	bool failed = false;
	u32 n_keys = 0;
	u64 n;

	if (at < 4096 || at & 7)
		return false;
	/* Before the buckets is one that contains only their number, at least 5. */
	n = runtime_u64(r->m, at, &failed);
	if (failed || n < 5 || n > MAX_BUCKETS)
		return false;
	for (u64 i = 0; i < MIN(n, 1024ULL) / 5; i++) {
		if (runtime_read(r->m, at + (1 + i * 5) * sizeof(struct bucket), buckets,
				 sizeof(buckets)) < 0)
			return false;
		for (u32 k = 0; k < 5 * BUCKET_SLOTS; k++) {
			u64 key = buckets[k / BUCKET_SLOTS].keys[k % BUCKET_SLOTS];

			if (key <= 1)
				continue;
			if (key < range->begin || key >= range->end)
				return false;
			n_keys++;
		}
	}
	return n_keys > 0;
}

int dotnet_learn_image(const struct dotnet_reader *r, const struct dotnet_range *range,
		       struct dotnet_found *ret)
{
	u64 words[MODULE_WORDS], info = 0;
	struct dotnet_found found = {.list = ret->list};

	if (runtime_read(r->m, range->module, words, sizeof(words)) < 0)
		return -EFAULT;
	for (u32 i = 1; i < MODULE_WORDS && !found.info; i++) {
		if (!is_info(r, words[i], range->module))
			continue;
		info = words[i];
		found.info = (u16)(i * 8);
	}
	if (info && r->p.composite) {
		bool failed = false;

		info = runtime_u64(r->m, info + r->p.composite, &failed);
		if (failed || !is_info(r, info, 0))
			return -ENOENT;
	}
	if (!info || runtime_read(r->m, info, words, INFO_WORDS * 8) < 0)
		return -ENOENT;
	for (u32 i = 3; i + 1 < INFO_WORDS && !found.functions; i++)
		if (are_functions(r, range, words[i], (u32)words[i + 1]))
			found.functions = (u16)(i * 8);
	for (u32 i = found.functions / 8; i < INFO_WORDS && !found.methods; i++)
		if (are_methods(r, range, words[i]))
			found.methods = (u16)(i * 8);
	if (!found.functions || !found.methods)
		return -ENOENT;
	*ret = found;
	return 0;
}

/* ---- methods ---- */

/* Looks up a key in the table of methods, as HashMap::LookupValue() does; 0: it is not there. */
static u64 find_key(const struct dotnet_reader *r, u64 table, u64 key)
{
	bool failed = false;
	u64 n = runtime_u64(r->m, table, &failed);
	u32 seed = (u32)(key >> 2), step;
	struct bucket b;

	if (failed || n < 5 || n > MAX_BUCKETS)
		return 0;
	step = 1 + ((u32)(key >> 5) + 1) % ((u32)n - 1);
	for (u32 i = 0; i < MAX_TRIES; i++, seed += step) {
		u64 at = table + (1 + (u64)(seed % (u32)n)) * sizeof(b);

		if (runtime_read(r->m, at, &b, sizeof(b)) < 0)
			return 0;
		for (u32 k = 0; k < BUCKET_SLOTS; k++)
			if (b.keys[k] == key)
				return (b.values[k] & ~COLLISION) << 1;
		if (!(b.values[0] & COLLISION))
			return 0;
	}
	return 0;
}

/* The index of the function at an offset from the image. -ENOENT. */
static int find_function(const struct dotnet_reader *r, u64 functions, u32 n, u32 offset)
{
	u32 lo = 0, hi = n;
	bool failed = false;

	while (lo < hi && !failed) {
		u32 mid = lo + (hi - lo) / 2;

		if (runtime_u32(r->m, functions + (u64)mid * sizeof(struct dotnet_function),
				&failed) <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return failed || !lo ? -ENOENT : (int)(lo - 1);
}

/*
 * Reads the unwind codes of a function, so that their page is in memory: BPF needs them and cannot
 * wait for a page, and a program that has had neither an exception nor a garbage collection has not
 * needed them itself.
 */
static void touch_codes(const struct dotnet_reader *r, const struct dotnet_range *range, u64 at)
{
	struct dotnet_function f;
	u32 head = 0;

	if (runtime_read(r->m, at, &f, sizeof(f)) < 0 || f.unwind >= range->end - range->begin)
		return;
	at = range->begin + f.unwind;
	/* u8 version and flags, u8 size of the prologue, u8 number of codes, u8 frame register */
	if (runtime_read(r->m, at, &head, sizeof(head)) == 0)
		(void)runtime_read(r->m, at + sizeof(head) + 2 * (head >> 16 & 0xff), &head, 1);
}

int dotnet_image_method(const struct dotnet_reader *r, const struct dotnet_range *range, u64 avma,
			u64 *ret_method)
{
	const struct dotnet_found *found = r->l->found;
	bool failed = false;
	u64 info, functions, methods, method;
	u32 n;
	int i;

	info = runtime_u64(r->m, range->module + found->info, &failed);
	if (r->p.composite)
		info = runtime_u64(r->m, info + r->p.composite, &failed);
	functions = runtime_u64(r->m, info + found->functions, &failed);
	n = runtime_u32(r->m, info + found->functions + 8, &failed);
	methods = runtime_u64(r->m, info + found->methods, &failed);
	if (failed || !found->info || n > MAX_FUNCTIONS)
		return -EFAULT;
	i = find_function(r, functions, n, (u32)(avma - range->begin));
	if (i >= 0)
		touch_codes(r, range, functions + (u64)i * sizeof(struct dotnet_function));
	for (int k = i; k >= 0 && k > i - MAX_FUNCLETS && !failed; k--) {
		u64 at = functions + (u64)k * sizeof(struct dotnet_function);

		method = find_key(r, methods, range->begin + runtime_u32(r->m, at, &failed));
		if (!method)
			continue;
		*ret_method = method;
		return 0;
	}
	return -ENOENT;
}
