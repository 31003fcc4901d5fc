/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/key.h"

#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* 10 ms to hash; of larger files without a build-id nothing is cached. */
#define MAX_HASHED (32ULL << 20)
#define PART (64U << 10)
/* Shorter ones are no hash, as in the symbol cache. */
#define MIN_BUILD_ID 4
#define SETTLED_NS 1000000000ULL

static u64 ns_of(const struct timespec *t)
{
	return (u64)t->tv_sec * 1000000000 + (u64)t->tv_nsec;
}

static void take_stat(struct elf_key *k, const struct stat *st)
{
	k->size = (u64)st->st_size;
	k->inode = st->st_ino;
	k->modified_ns = ns_of(&st->st_mtim);
	k->changed_ns = ns_of(&st->st_ctim);
	k->owner = st->st_uid;
}

/* A file of memfd_create(), or a deleted one of a tmpfs: no other process will find it. */
static bool in_memory_only(int fd, const struct stat *st)
{
	struct statfs fs;

	return !st->st_nlink && (fstatfs(fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC);
}

static int hash_content(int fd, u64 size, u8 ret[sizeof(XXH128_canonical_t)])
{
	_cleanup_free_ u8 *part = malloc(PART);
	XXH3_state_t *x = part ? XXH3_createState() : NULL;
	XXH128_canonical_t hash;
	ssize_t n = 1;

	if (!x)
		return -ENOMEM;
	(void)XXH3_128bits_reset(x);
	for (u64 at = 0; at < size && n > 0; at += (u64)n) {
		n = pread(fd, part, PART, (off_t)at);
		if (n > 0)
			(void)XXH3_128bits_update(x, part, (size_t)n);
	}
	XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(x));
	XXH3_freeState(x);
	memcpy(ret, &hash, sizeof(hash));
	return n > 0 ? 0 : -EIO;
}

int elf_key_of(int fd, const u8 *build_id, u32 build_id_n, u16 machine, struct elf_key *ret)
{
	struct elf_key k = {.machine = machine};
	struct stat st;
	u64 now = clock_ns(CLOCK_REALTIME);
	int r = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || in_memory_only(fd, &st))
		return -ENOTSUP;
	take_stat(&k, &st);
	if (k.changed_ns > now || now - k.changed_ns < SETTLED_NS)
		return -EAGAIN;
	if (build_id_n >= MIN_BUILD_ID && build_id_n <= sizeof(k.id)) {
		memcpy(k.id, build_id, build_id_n);
		k.id_n = build_id_n;
	} else if (k.size <= MAX_HASHED) {
		k.hashed = 1;
		k.id_n = sizeof(XXH128_canonical_t);
		r = hash_content(fd, k.size, k.id);
	} else {
		r = -ENOTSUP;
	}
	if (r == 0)
		*ret = k;
	return r;
}

bool elf_key_holds(const struct elf_key *k, int fd)
{
	struct elf_key now = *k;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	take_stat(&now, &st);
	return !memcmp(&now, k, sizeof(now));
}
_Static_assert(sizeof(struct elf_key) == ELF_MAX_BUILD_ID + 48,
	       "no holes: keys are compared and stored");
