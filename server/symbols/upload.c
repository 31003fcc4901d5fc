/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receives a debug file: decompresses the file part by part into DIR/incoming, checks the complete
 * file, and moves it to its place. An aborted upload leaves nothing. After a server was killed, the
 * next server removes the files in incoming.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "server/symbols/internal.h"

#define WINDOW_GZIP (15 + 16)
#define ZSTD_WINDOW_LOG_MAX 27 /* what zstd --long makes: 128 MiB */
/* A file may be so many times as large as what was received of it, and this much larger. */
#define MAX_RATIO 64
#define FREE_BYTES (16ULL << 20)

struct symstore_upload {
	struct symstore *s;
	char build_id[SYMSTORE_ID_BYTES];
	char name[64]; /* in the directory */
	int fd;	       /* owned */
	u64 bytes;
	u64 received;	 /* as sent */
	z_stream *gzip;	 /* owned, or NULL */
	ZSTD_DCtx *zstd; /* owned, or NULL */
	bool replace;	 /* as in symstore_upload_begin() */
	char token[64], peer[64];
	bool ended; /* the compressed stream is complete */
	int error;
	struct diag diag;
};

static int start_decoder(struct symstore_upload *u, const char *encoding, struct diag *reterr_diag)
{
	if (!encoding || !*encoding || !strcasecmp(encoding, "identity"))
		return 0;
	if (!strcasecmp(encoding, "gzip") || !strcasecmp(encoding, "x-gzip")) {
		u->gzip = calloc(1, sizeof(*u->gzip));
		if (u->gzip && inflateInit2(u->gzip, WINDOW_GZIP) == Z_OK)
			return 0;
		free(u->gzip);
		u->gzip = NULL;
		return -ENOMEM;
	}
	if (strcasecmp(encoding, "zstd") != 0)
		return diag_set(reterr_diag, -ENOTSUP,
				"the content encoding must be gzip, zstd or identity");
	u->zstd = ZSTD_createDCtx();
	if (!u->zstd ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX)))
		return -ENOMEM;
	return 0;
}

int symstore_upload_begin(struct symstore *s, const char *build_id, const char *encoding,
			  bool replace, struct diag *reterr_diag, struct symstore_upload **ret)
{
	_cleanup_symstore_upload_ struct symstore_upload *u = NULL;
	int r;

	if (!symstore_is_build_id(build_id))
		return diag_set(reterr_diag, -EINVAL,
				"a build-id is an even number of digits of 0-9 and a-f");
	u = calloc(1, sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->fd = -1;
	u->replace = replace;
	if (atomic_fetch_add(&s->uploads, 1) >= SYMSTORE_MAX_UPLOADS)
		r = diag_set(reterr_diag, -EAGAIN, "%d files are being uploaded already; try again",
			     SYMSTORE_MAX_UPLOADS);
	else
		r = 0;
	u->s = s; /* from here on symstore_upload_free() decrements s->uploads */
	if (r == 0)
		r = start_decoder(u, encoding, reterr_diag);
	if (r < 0)
		return r;
	snprintf(u->build_id, sizeof(u->build_id), "%s", build_id);
	snprintf(u->name, sizeof(u->name), "incoming/%u", atomic_fetch_add(&s->names, 1));
	u->fd = openat(s->dir_fd, u->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		       0600);
	if (u->fd < 0)
		return diag_set(reterr_diag, -errno, "cannot keep symbols: %s", strerror(errno));
	*ret = take_ptr(u);
	return 0;
}

void symstore_upload_set_who(struct symstore_upload *u, const struct symstore_who *who)
{
	snprintf(u->token, sizeof(u->token), "%s", who->token);
	snprintf(u->peer, sizeof(u->peer), "%s", who->peer);
}

static void set_error(struct symstore_upload *u, int error, const char *text)
{
	if (!u->error)
		u->error = diag_set(&u->diag, error, "%s", text);
}

static void put_plain(struct symstore_upload *u, const u8 *data, size_t n)
{
	u64 max = symstore_max_file(u->s);

	if (u->bytes + n > max && !u->error)
		u->error = diag_set(&u->diag, -EFBIG, "a debug file may have %llu MiB at most",
				    max >> 20);
	/* Debug files compress to a tenth. Zeros would fill the disk before the last check. */
	if ((u->gzip || u->zstd) && u->bytes + n > FREE_BYTES + u->received * MAX_RATIO &&
	    !u->error)
		u->error = diag_set(&u->diag, -EFBIG,
				    "a debug file may decompress to %d times its size at most",
				    MAX_RATIO);
	while (n && !u->error) {
		ssize_t done = write(u->fd, data, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			set_error(u, -errno, strerror(errno));
			break;
		}
		u->bytes += (u64)done;
		data += done;
		n -= (size_t)done;
	}
}

static void put_gzip(struct symstore_upload *u, const u8 *data, size_t n)
{
	z_stream *z = u->gzip;
	u8 chunk[64 << 10];

	z->next_in = (u8 *)data;
	z->avail_in = (uInt)n; /* a part of a body: some KiB */
	while (!u->error && (z->avail_in || !z->avail_out)) {
		int r;

		if (u->ended) { /* another member follows */
			inflateReset(z);
			u->ended = false;
		}
		z->next_out = chunk;
		z->avail_out = sizeof(chunk);
		r = inflate(z, Z_NO_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
			set_error(u, -EINVAL, "damaged gzip data");
		put_plain(u, chunk, sizeof(chunk) - z->avail_out);
		u->ended = r == Z_STREAM_END;
		if (u->ended && !z->avail_in)
			return;
		if (r == Z_BUF_ERROR)
			return;
	}
}

static void put_zstd(struct symstore_upload *u, const u8 *data, size_t n)
{
	ZSTD_inBuffer in = {data, n, 0};
	u8 chunk[64 << 10];
	ZSTD_outBuffer out;

	do {
		size_t left;

		out = (ZSTD_outBuffer){chunk, sizeof(chunk), 0};
		left = ZSTD_decompressStream(u->zstd, &out, &in);
		if (ZSTD_isError(left)) {
			set_error(u, -EINVAL, "damaged zstd data");
			return;
		}
		u->ended = left == 0;
		put_plain(u, chunk, out.pos);
	} while (!u->error && (in.pos < in.size || out.pos == out.size));
}

void symstore_upload_part(struct symstore_upload *u, const void *data, size_t n)
{
	if (u->error || !n)
		return;
	u->received += n;
	if (u->gzip)
		put_gzip(u, data, n);
	else if (u->zstd)
		put_zstd(u, data, n);
	else
		put_plain(u, data, n);
}

static int check_upload(struct symstore_upload *u, struct symstore_kind *ret,
			struct diag *reterr_diag)
{
	struct diag why = {};
	int r = u->error;

	if (r == 0 && (u->gzip || u->zstd) && !u->ended)
		r = diag_set(&u->diag, -EINVAL, "the compressed data is cut off");
	if (r < 0)
		return diag_set(reterr_diag, r, "%s", u->diag.text);
	r = symstore_check(u->fd, u->build_id, symstore_max_file(u->s), ret, &why);
	return r < 0 ? diag_set(reterr_diag, r, "this file cannot be used: %s",
				why.text[0] ? why.text : strerror(-r))
		     : 0;
}

static int keep(struct symstore_upload *u, const struct symstore_kind *k,
		const struct symstore_shared *shared, struct diag *reterr_diag)
{
	int r = symstore_keep(u->s, u->build_id, u->name, u->fd, k, u->replace, shared,
			      reterr_diag);

	if (r > 0)
		u->name[0] = '\0'; /* the file has its final name */
	return r;
}

int symstore_upload_end(struct symstore_upload *u, struct diag *reterr_diag)
{
	const struct symstore_who who = {u->token, u->peer};
	struct symstore_shared shared;
	struct symstore_kind k;
	struct diag why = {};
	int r = check_upload(u, &k, reterr_diag);

	if (r < 0 || !u->s->is_shared)
		return r < 0 ? r : keep(u, &k, NULL, reterr_diag);
	r = symstore_share(u->s, u->build_id, u->fd, &k, u->replace, &who, &shared, &why);
	if (r < 0)
		return diag_set(reterr_diag, r, "cannot keep symbols: %s",
				why.text[0] ? why.text : strerror(-r));
	return r ? keep(u, &k, &shared, reterr_diag) : 0;
}

int symstore_upload_end_fetched(struct symstore_upload *u, const struct symstore_shared *from,
				struct diag *reterr_diag)
{
	struct symstore_kind k;
	int r = check_upload(u, &k, reterr_diag);

	if (r == 0 && u->bytes != from->bytes)
		r = diag_set(reterr_diag, -EINVAL, "the store has %llu bytes of it, not %llu",
			     u->bytes, from->bytes);
	return r < 0 ? r : keep(u, &k, from, reterr_diag);
}

void symstore_upload_free(struct symstore_upload *u)
{
	if (u->s)
		atomic_fetch_sub(&u->s->uploads, 1);
	if (u->fd >= 0 && u->name[0])
		unlinkat(u->s->dir_fd, u->name, 0);
	cleanup_close(&u->fd);
	if (u->gzip)
		inflateEnd(u->gzip);
	free(u->gzip);
	ZSTD_freeDCtx(u->zstd);
	free(u);
}
