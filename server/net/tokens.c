/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token file has lines "ROLE TOKEN", with a ROLE of read, write or admin; '#' begins a comment.
 * The server reads the file again when the file changes; if that fails, the old tokens stay.
 *
 * The server keeps only the SHA-256 of a token. It hashes what a client sends, and compares the
 * hash with all hashes in constant time.
 */
#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/vec.h"
#include "server/net/internal.h"

#define MAX_FILE_BYTES (1u << 20)
#define MIN_TOKEN_BYTES 16
#define MAX_TOKEN_BYTES 1024
#define HASH_BYTES 32
#define CHECK_EVERY_MS 1000

struct token {
	u8 hash[HASH_BYTES];
	enum net_role role;
};

struct token_list {
	vec(struct token) tokens;
};

struct net_tokens {
	pthread_mutex_t lock; /* for all members below */
	char *path;	      /* owned */
	struct token_list list;
	struct timespec mtime;
	off_t size;
	ino_t inode;
	u64 checked_ms;
};

static int hash_token(const char *token, size_t n, u8 ret[HASH_BYTES])
{
	return gnutls_hash_fast(GNUTLS_DIG_SHA256, token, n, ret) < 0 ? -EIO : 0;
}

static enum net_role role_of_name(const char *s, size_t n)
{
	static const struct {
		const char *name;
		enum net_role role;
	} roles[] = {{"read", NET_ROLE_READ}, {"write", NET_ROLE_WRITE}, {"admin", NET_ROLE_ADMIN}};

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (strlen(roles[i].name) == n && !memcmp(roles[i].name, s, n))
			return roles[i].role;
	return NET_ROLE_NONE;
}

/* s: a line without its end. Errors have the number of the line, never its content. */
static int parse_line(struct token_list *l, const char *s, size_t n, u32 number, const char *path,
		      struct diag *reterr_diag)
{
	struct token t = {};
	size_t role_n, at;
	int r;

	while (n && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
		n--;
	for (at = 0; at < n && (s[at] == ' ' || s[at] == '\t'); at++)
		;
	if (at == n || s[at] == '#')
		return 0;
	s += at;
	n -= at;
	for (role_n = 0; role_n < n && s[role_n] != ' ' && s[role_n] != '\t'; role_n++)
		;
	t.role = role_of_name(s, role_n);
	for (at = role_n; at < n && (s[at] == ' ' || s[at] == '\t'); at++)
		;
	if (t.role == NET_ROLE_NONE || at == n)
		return diag_set(reterr_diag, -EINVAL,
				"%s:%u: a line must be: read|write|admin TOKEN", path, number);
	if (n - at < MIN_TOKEN_BYTES || n - at > MAX_TOKEN_BYTES || memchr(s + at, ' ', n - at))
		return diag_set(reterr_diag, -EINVAL,
				"%s:%u: a token must have %d to %d characters and no spaces", path,
				number, MIN_TOKEN_BYTES, MAX_TOKEN_BYTES);
	r = hash_token(s + at, n - at, t.hash);
	return r < 0 ? r : vec_push(&l->tokens, t);
}

static int parse_file(struct token_list *l, const struct str *text, const char *path,
		      struct diag *reterr_diag)
{
	const char *s = str_get(text), *end = s + text->n;
	int r = 0;

	for (u32 number = 1; s < end && r == 0; number++) {
		const char *eol = memchr(s, '\n', (size_t)(end - s));

		eol = eol ? eol : end;
		r = parse_line(l, s, (size_t)(eol - s), number, path, reterr_diag);
		s = eol + 1;
	}
	if (r == 0 && !l->tokens.n)
		r = diag_set(reterr_diag, -EINVAL, "%s: has no token", path);
	return r;
}

static int read_file(struct net_tokens *t, struct token_list *ret, struct stat *ret_st,
		     struct diag *reterr_diag)
{
	_cleanup_str_ struct str text = {};
	_cleanup_close_ int fd = open(t->path, O_RDONLY | O_CLOEXEC);
	char chunk[4096];
	ssize_t n;
	int r;

	if (fd < 0 || fstat(fd, ret_st) < 0)
		return diag_set(reterr_diag, -errno, "%s: cannot read the tokens: %s", t->path,
				strerror(errno));
	if (S_ISREG(ret_st->st_mode) && (ret_st->st_mode & (S_IRWXO)))
		log_warn("%s: every user of this machine can read or change the tokens; chmod 600",
			 t->path);
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		if (text.n > MAX_FILE_BYTES || str_append(&text, chunk, (size_t)n) < 0)
			return diag_set(reterr_diag, -EFBIG, "%s: too large for tokens", t->path);
	if (n < 0)
		return diag_set(reterr_diag, -errno, "%s: cannot read the tokens: %s", t->path,
				strerror(errno));
	r = parse_file(ret, &text, t->path, reterr_diag);
	explicit_bzero(chunk, sizeof(chunk));
	if (text.data)
		explicit_bzero(text.data, text.n);
	return r;
}

/* Under the lock. Checks at most once a second whether the file has changed. */
static void reload_changed(struct net_tokens *t)
{
	struct token_list list = {};
	struct diag d = {};
	struct stat st;
	u64 now = net_now_ms();

	if (now - t->checked_ms < CHECK_EVERY_MS)
		return;
	t->checked_ms = now;
	if (stat(t->path, &st) < 0 ||
	    (st.st_mtim.tv_sec == t->mtime.tv_sec && st.st_mtim.tv_nsec == t->mtime.tv_nsec &&
	     st.st_size == t->size && st.st_ino == t->inode))
		return;
	if (read_file(t, &list, &st, &d) < 0) {
		log_warn("%s; the old tokens stay", d.text);
		vec_deinit(&list.tokens);
	} else {
		vec_deinit(&t->list.tokens);
		t->list = list;
	}
	t->mtime = st.st_mtim;
	t->size = st.st_size;
	t->inode = st.st_ino;
}

int net_tokens_create(const char *path, struct diag *reterr_diag, struct net_tokens **ret)
{
	struct net_tokens *t = calloc(1, sizeof(*t));
	struct stat st = {};
	int r;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->path = strdup(path);
	r = t->path ? read_file(t, &t->list, &st, reterr_diag) : -ENOMEM;
	if (r < 0) {
		net_tokens_destroy(t);
		return r;
	}
	t->mtime = st.st_mtim;
	t->size = st.st_size;
	t->inode = st.st_ino;
	t->checked_ms = net_now_ms();
	*ret = t;
	return 0;
}

void net_tokens_destroy(struct net_tokens *t)
{
	if (!t)
		return;
	vec_deinit(&t->list.tokens);
	pthread_mutex_destroy(&t->lock);
	free(t->path);
	free(t);
}

/* Compares with all hashes, so that the time does not depend on the token. */
static enum net_role find_role(const struct token_list *l, const u8 hash[HASH_BYTES])
{
	u32 role = NET_ROLE_NONE;

	for (size_t i = 0; i < l->tokens.n; i++) {
		const struct token *t = &l->tokens.data[i];
		u32 same = gnutls_memcmp(t->hash, hash, HASH_BYTES) == 0;

		role |= t->role * same;
	}
	return (enum net_role)role;
}

/* The password of "Basic base64(USER:PASSWORD)"; *ret owns the memory. */
static int basic_password(const char *encoded, gnutls_datum_t *ret, const char **ret_token)
{
	gnutls_datum_t in = {(u8 *)encoded, (unsigned int)strnlen(encoded, 2 * MAX_TOKEN_BYTES)};
	char *colon;

	if (in.size >= 2 * MAX_TOKEN_BYTES || gnutls_base64_decode2(&in, ret) < 0)
		return -EINVAL;
	colon = memchr(ret->data, ':', ret->size);
	if (!colon) {
		gnutls_free(ret->data);
		return -EINVAL;
	}
	*ret_token = colon + 1;
	return 0;
}

enum net_role net_tokens_role(struct net_tokens *t, const char *authorization)
{
	gnutls_datum_t decoded = {};
	enum net_role role = NET_ROLE_NONE;
	const char *token;
	u8 hash[HASH_BYTES];
	size_t n;

	if (!authorization)
		return NET_ROLE_NONE;
	if (!strncasecmp(authorization, "Bearer ", 7)) {
		token = authorization + 7;
		n = strnlen(token, MAX_TOKEN_BYTES + 1);
	} else if (!strncasecmp(authorization, "Basic ", 6) &&
		   basic_password(authorization + 6, &decoded, &token) == 0) {
		n = (size_t)((char *)decoded.data + decoded.size - token);
	} else {
		return NET_ROLE_NONE;
	}
	if (n <= MAX_TOKEN_BYTES && hash_token(token, n, hash) == 0) {
		pthread_mutex_lock(&t->lock);
		reload_changed(t);
		role = find_role(&t->list, hash);
		pthread_mutex_unlock(&t->lock);
	}
	if (decoded.data) {
		explicit_bzero(decoded.data, decoded.size);
		gnutls_free(decoded.data);
	}
	return role;
}
