/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials of a listener: its certificate, and the CA of its clients. Loaded credentials never
 * change: a connection keeps the credentials with which it began, and a new connection gets those
 * that were loaded last.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "server/net/internal.h"

#define MAX_PEM_BYTES (1u << 20)

struct net_credentials {
	atomic_uint refs;
	gnutls_certificate_credentials_t of; /* owned */
};

void net_credentials_put(struct net_credentials *c)
{
	if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	gnutls_certificate_free_credentials(c->of);
	free(c);
}
DEFINE_CLEANUP(credentials, struct net_credentials *, net_credentials_put)

static int read_pem(const char *path, struct str *ret, struct diag *reterr_diag)
{
	_cleanup_close_ int fd = net_open_secret(path);
	char chunk[4096];
	ssize_t n = -1;

	while (fd >= 0 && (n = read(fd, chunk, sizeof(chunk))) > 0)
		if (ret->n > MAX_PEM_BYTES || str_append(ret, chunk, (size_t)n) < 0)
			return diag_set(reterr_diag, -EFBIG, "%s: too large for PEM", path);
	if (n < 0)
		return diag_set(reterr_diag, -errno, "%s: cannot read: %s", path, strerror(errno));
	return ret->n ? 0 : diag_set(reterr_diag, -EINVAL, "%s: the file is empty", path);
}

static gnutls_datum_t datum(const struct str *s)
{
	return (gnutls_datum_t){(u8 *)s->data, (unsigned int)s->n};
}

static void forget_key(struct str *key)
{
	if (key->data)
		explicit_bzero(key->data, key->n);
	str_deinit(key);
}

static int read_credentials(const struct net_tls *tls, struct net_credentials *c,
			    struct diag *reterr_diag)
{
	_cleanup_str_ struct str cert = {}, ca = {};
	__attribute__((cleanup(forget_key))) struct str key = {};
	gnutls_datum_t d, k;
	int r = read_pem(tls->cert, &cert, reterr_diag);

	if (r == 0)
		r = read_pem(tls->key, &key, reterr_diag);
	if (r == 0 && tls->client_ca)
		r = read_pem(tls->client_ca, &ca, reterr_diag);
	if (r < 0)
		return r;
	d = datum(&cert);
	k = datum(&key);
	r = gnutls_certificate_set_x509_key_mem(c->of, &d, &k, GNUTLS_X509_FMT_PEM);
	if (r < 0)
		return diag_set(reterr_diag, -EINVAL, "certificate %s and key %s: %s", tls->cert,
				tls->key, gnutls_strerror(r));
	if (!tls->client_ca)
		return 0;
	d = datum(&ca);
	r = gnutls_certificate_set_x509_trust_mem(c->of, &d, GNUTLS_X509_FMT_PEM);
	return r > 0 ? 0
		     : diag_set(reterr_diag, -EINVAL, "client CA %s: %s", tls->client_ca,
				r ? gnutls_strerror(r) : "no certificate in it");
}

int net_credentials_load(struct net_listener *l, struct diag *reterr_diag)
{
	const struct net_tls tls = {l->cert, l->key, l->ca};
	_cleanup_(credentials) struct net_credentials *c = calloc(1, sizeof(*c));
	struct net_credentials *old;
	int r;

	if (!c)
		return -ENOMEM;
	atomic_store(&c->refs, 1);
	if (gnutls_certificate_allocate_credentials(&c->of) < 0)
		return -ENOMEM;
	r = read_credentials(&tls, c, reterr_diag);
	if (r < 0)
		return r;
	pthread_mutex_lock(&l->lock);
	old = l->credentials;
	l->credentials = c;
	pthread_mutex_unlock(&l->lock);
	c = old; /* put at the end */
	return 0;
}

struct net_credentials *net_credentials_give(struct net_listener *l, void *session)
{
	struct net_credentials *c;

	pthread_mutex_lock(&l->lock);
	c = l->credentials;
	atomic_fetch_add(&c->refs, 1);
	pthread_mutex_unlock(&l->lock);
	if (gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, c->of) == 0)
		return c;
	net_credentials_put(c);
	return NULL;
}
