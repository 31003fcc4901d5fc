/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Upload of a debug file. The first byte chooses the compression and the size of parts, the rest is
 * the body. A file that the server keeps must be an ELF file with the build-id of the request.
 * (fuzz_symbols reads the symbols of such files.)
 */
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/store/private.h"
#include "server/symbols/symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BUILD_ID "00112233445566778899aabbccddeeff00112233"

static int name_nothing(struct store *s, const char *build_id,
			int (*name)(void *userdata, u64 address, struct profile *into,
				    u32 *ret_frames, size_t max),
			void *userdata, struct diag *reterr_diag)
{
	return 0;
}

static struct symstore *opened;
static char dir[] = "/tmp/culprit-fuzz-XXXXXX";

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static void end(void)
{
	symstore_destroy(opened);
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct symstore *open_once(void)
{
	static const struct store_ops ops = {.name_frames = name_nothing};
	static struct store store = {.ops = &ops};
	const struct symstore_options o = {.store = &store, .dir = dir, .max_bytes = 4 << 20};

	if (!opened &&
	    (!mkdtemp(dir) || symstore_create(&o, NULL, &opened) < 0 || atexit(end) != 0))
		abort();
	return opened;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const encodings[] = {NULL, "gzip", "zstd", "identity"};
	_cleanup_symstore_upload_ struct symstore_upload *u = NULL;
	struct symstore *s = open_once();
	struct symstore_file f;
	struct diag d = {};
	size_t part;
	int r;

	if (!size)
		return 0;
	part = (size_t)1 << (data[0] >> 2 & 15);
	if (symstore_upload_begin(s, BUILD_ID, encodings[data[0] & 3], false, &d, &u) < 0)
		abort();
	for (size_t at = 1; at < size; at += part)
		symstore_upload_part(u, data + at, size - at < part ? size - at : part);
	r = symstore_upload_end(u, &d);
	if (r < 0 ? !d.text[0] : symstore_file(s, BUILD_ID, &f) < 0 || !f.bytes)
		abort();
	return 0;
}
