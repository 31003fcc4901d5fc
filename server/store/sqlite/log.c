/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the write-ahead log still has all committed transactions. SQLite silently applies the log
 * up to the first frame with a wrong checksum, because a process may be killed while it writes a
 * frame. A damaged frame looks the same; SQLite would then drop acknowledged transactions, or
 * overwrite newer pages, which a checkpoint has written to the file, with old ones.
 *
 * The file NAME-shm, which a killed process leaves behind, says how many frames were committed and
 * how many of them are in the database file. (Formats: https://sqlite.org/walformat.html and
 * /fileformat2.html.) Without that file the log is taken to be whole.
 */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "server/store/sqlite/repair.h"

#define LOG_HEADER 32
#define FRAME_HEADER 24
#define MAGIC 0x377f0682u /* lowest bit set: checksums over big-endian words */
#define MAX_PAGE 65536

/* The start of NAME-shm: its header, twice, and the progress of checkpoints. Native byte order. */
struct index_header {
	u32 version, unused, change;
	u8 is_init, big_endian;
	u16 page_size;
	u32 frames, pages;
	u32 frame_sum[2], salt[2], sum[2];
};

struct index {
	struct index_header header[2];
	u32 copied; /* frames that are in the database file */
	u32 read_marks[5];
	u8 locks[8];
	u32 attempted; /* frames that may be in it */
};

static int open_part(const char *path, const char *part)
{
	_cleanup_str_ struct str name = {};

	str_printf(&name, "%s%s", path, part);
	return open(str_get(&name), O_RDONLY | O_CLOEXEC);
}

static bool read_index(const char *path, struct index *ret)
{
	_cleanup_close_ int fd = open_part(path, "-shm");

	return fd >= 0 && pread(fd, ret, sizeof(*ret), 0) == sizeof(*ret) &&
	       !memcmp(&ret->header[0], &ret->header[1], sizeof(ret->header[0])) &&
	       ret->header[0].is_init == 1;
}

static void add_sum(u32 sum[2], const u8 *data, size_t n, bool big_endian)
{
	for (size_t i = 0; i + 8 <= n; i += 8) {
		u32 a, b;

		memcpy(&a, data + i, 4);
		memcpy(&b, data + i + 4, 4);
		sum[0] += (big_endian ? be32toh(a) : le32toh(a)) + sum[1];
		sum[1] += (big_endian ? be32toh(b) : le32toh(b)) + sum[0];
	}
}

static u32 get_word(const u8 *data, size_t i)
{
	u32 v;

	memcpy(&v, data + 4 * i, 4);
	return be32toh(v);
}

/*
 * The number of frames that SQLite will apply: up to the last commit before the first wrong
 * checksum.
 */
static u32 whole_frames(const char *path)
{
	_cleanup_close_ int fd = open_part(path, "-wal");
	_cleanup_free_ u8 *frame = malloc(FRAME_HEADER + MAX_PAGE);
	u32 sum[2] = {}, page, whole = 0;
	u8 header[LOG_HEADER];
	bool big_endian;

	if (fd < 0 || !frame || pread(fd, header, sizeof(header), 0) != sizeof(header))
		return 0;
	page = get_word(header, 2);
	big_endian = get_word(header, 0) & 1;
	add_sum(sum, header, 24, big_endian);
	if ((get_word(header, 0) & ~1u) != MAGIC || page < 512 || page > MAX_PAGE ||
	    page & (page - 1) || sum[0] != get_word(header, 6) || sum[1] != get_word(header, 7))
		return 0;
	for (u32 i = 1;; i++) {
		size_t size = FRAME_HEADER + page;
		off_t at = LOG_HEADER + (off_t)(i - 1) * (off_t)size;

		if (pread(fd, frame, size, at) != (ssize_t)size ||
		    memcmp(frame + 8, header + 16, 8) != 0 || !get_word(frame, 0))
			return whole;
		add_sum(sum, frame, 8, big_endian);
		add_sum(sum, frame + FRAME_HEADER, page, big_endian);
		if (sum[0] != get_word(frame, 4) || sum[1] != get_word(frame, 5))
			return whole;
		if (get_word(frame, 1))
			whole = i;
	}
}

enum sq_log sq_check_log(const char *path)
{
	struct index index;
	u32 whole, frames;

	if (!read_index(path, &index))
		return SQ_LOG_WHOLE;
	frames = index.header[0].frames;
	whole = frames ? whole_frames(path) : 0;
	if (whole >= frames)
		return SQ_LOG_WHOLE;
	if (whole >= MAX(index.copied, index.attempted))
		return SQ_LOG_SHORT;
	return index.copied >= index.attempted ? SQ_LOG_STALE : SQ_LOG_MIXED;
}
