/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token file has lines "ROLE TOKEN [RIGHT...]", with a ROLE of read, write or admin; '#' begins a
 * comment. Rights:
 *	name=NAME	a name for the token in logs
 *	host=HOST	a writer: samples and spans of this host.name only
 *	symbols=no	a writer: no symbols
 * The server reads the file again when the file changes; if that fails, the old tokens stay.
 *
 * The server keeps only the SHA-256 of a token. It hashes what a client sends, and compares the
 * hash with all hashes in constant time.
 */
#include <errno.h>
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
	struct net_sender sender;
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
	} roles[] = {{"read", NET_ROLE_READ},
		     {"write", NET_ROLE_WRITE | NET_ROLE_SYMBOLS},
		     {"admin", NET_ROLE_ADMIN}};

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (strlen(roles[i].name) == n && !memcmp(roles[i].name, s, n))
			return roles[i].role;
	return NET_ROLE_NONE;
}

/* The next word of a line: its length, and *at behind the blanks before it. */
static size_t next_word(const char *s, size_t n, size_t *at)
{
	size_t end;

	while (*at < n && (s[*at] == ' ' || s[*at] == '\t' || s[*at] == '\r'))
		++*at;
	for (end = *at; end < n && s[end] != ' ' && s[end] != '\t' && s[end] != '\r'; end++)
		;
	return end - *at;
}

static bool take_text(const char *word, size_t n, const char *key, char *ret, size_t cap)
{
	size_t key_n = strlen(key);

	if (n <= key_n || memcmp(word, key, key_n) != 0 || n - key_n >= cap)
		return false;
	memcpy(ret, word + key_n, n - key_n);
	ret[n - key_n] = '\0';
	return true;
}

static bool take_right(struct net_sender *t, const char *word, size_t n)
{
	bool writer = t->role & NET_ROLE_WRITE && t->role != NET_ROLE_ADMIN;

	if (take_text(word, n, "name=", t->name, sizeof(t->name)))
		return true;
	if (writer && take_text(word, n, "host=", t->host, sizeof(t->host)))
		return true;
	if (!writer || n != 10 || memcmp(word, "symbols=no", n) != 0)
		return false;
	t->role &= ~(u32)NET_ROLE_SYMBOLS;
	return true;
}

/* s: a line without its end. Errors have the number of the line, never its content. */
static int parse_line(struct token_list *l, const char *s, size_t n, u32 number, const char *path,
		      struct diag *reterr_diag)
{
	struct token t = {};
	size_t at = 0, word_n = next_word(s, n, &at);
	int r;

	if (!word_n || s[at] == '#')
		return 0;
	t.sender.role = role_of_name(s + at, word_n);
	at += word_n;
	word_n = next_word(s, n, &at);
	if (t.sender.role == NET_ROLE_NONE || !word_n)
		return diag_set(reterr_diag, -EINVAL,
				"%s:%u: a line must be: read|write|admin TOKEN", path, number);
	if (word_n < MIN_TOKEN_BYTES || word_n > MAX_TOKEN_BYTES)
		return diag_set(reterr_diag, -EINVAL,
				"%s:%u: a token must have %d to %d characters and no spaces", path,
				number, MIN_TOKEN_BYTES, MAX_TOKEN_BYTES);
	r = hash_token(s + at, word_n, t.hash);
	for (at += word_n; r == 0 && (word_n = next_word(s, n, &at)); at += word_n)
		if (!take_right(&t.sender, s + at, word_n))
			return diag_set(reterr_diag, -EINVAL,
					"%s:%u: behind the token there may be name=NAME, and of a "
					"writer host=HOST and symbols=no",
					path, number);
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
	_cleanup_close_ int fd = net_open_secret(t->path);
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
	_cleanup_close_ int fd = -1;
	struct diag d = {};
	struct stat st;
	u64 now = net_now_ms();

	if (now - t->checked_ms < CHECK_EVERY_MS)
		return;
	t->checked_ms = now;
	fd = net_open_secret(t->path);
	if (fd < 0 || fstat(fd, &st) < 0 ||
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

/*
 * Compares with all hashes, so that the time does not depend on the token. Several lines with the
 * same token give it all their roles, and the name and host of the last.
 */
static struct net_sender find_sender(const struct token_list *l, const u8 hash[HASH_BYTES])
{
	static const struct token nobody;
	const struct token *found[2] = {&nobody, &nobody};
	struct net_sender sender;
	u32 role = NET_ROLE_NONE;

	for (size_t i = 0; i < l->tokens.n; i++) {
		const struct token *t = &l->tokens.data[i];
		u32 same = gnutls_memcmp(t->hash, hash, HASH_BYTES) == 0;

		found[same] = t;
		role |= (u32)t->sender.role * same;
	}
	sender = found[1]->sender;
	sender.role = (enum net_role)role;
	return sender;
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

struct net_sender net_tokens_sender(struct net_tokens *t, const char *authorization)
{
	gnutls_datum_t decoded = {};
	struct net_sender sender = {};
	const char *token;
	u8 hash[HASH_BYTES];
	size_t n;

	if (!authorization)
		return sender;
	if (!strncasecmp(authorization, "Bearer ", 7)) {
		token = authorization + 7;
		n = strnlen(token, MAX_TOKEN_BYTES + 1);
	} else if (!strncasecmp(authorization, "Basic ", 6) &&
		   basic_password(authorization + 6, &decoded, &token) == 0) {
		n = (size_t)((char *)decoded.data + decoded.size - token);
	} else {
		return sender;
	}
	if (n <= MAX_TOKEN_BYTES && hash_token(token, n, hash) == 0) {
		pthread_mutex_lock(&t->lock);
		reload_changed(t);
		sender = find_sender(&t->list, hash);
		pthread_mutex_unlock(&t->lock);
	}
	if (decoded.data) {
		explicit_bzero(decoded.data, decoded.size);
		gnutls_free(decoded.data);
	}
	return sender;
}
