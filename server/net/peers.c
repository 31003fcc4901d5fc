/* SPDX-License-Identifier: Apache-2.0 */
/* The clients that have connections, by address: a hash table with a chain per bucket. */
#include <netinet/in.h>
#include <string.h>

#include "base/map.h"
#include "server/net/internal.h"

static void make_key(const struct sockaddr *a, u8 ret[16])
{
	memset(ret, 0, 16);
	if (a->sa_family == AF_INET6)
		memcpy(ret, &((const struct sockaddr_in6 *)a)->sin6_addr, 8);
	else if (a->sa_family == AF_INET)
		memcpy(ret + 12, &((const struct sockaddr_in *)a)->sin_addr, 4);
	/* IPv4 in IPv6 has the prefix ::ffff:0:0/96. */
	if (a->sa_family == AF_INET6 &&
	    IN6_IS_ADDR_V4MAPPED(&((const struct sockaddr_in6 *)a)->sin6_addr))
		memcpy(ret + 12, (const u8 *)&((const struct sockaddr_in6 *)a)->sin6_addr + 12, 4);
}

static struct net_peer **bucket_of(struct net *n, const u8 key[16])
{
	return &n->peers[hash_bytes(key, 16) % ARRAY_SIZE(n->peers)];
}

struct net_peer *net_peer_get(struct net *n, const struct sockaddr *a)
{
	struct net_peer *p, **bucket;
	u8 key[16];

	make_key(a, key);
	pthread_mutex_lock(&n->lock);
	bucket = bucket_of(n, key);
	for (p = *bucket; p && memcmp(p->key, key, sizeof(key)) != 0; p = p->next)
		;
	if (!p && (p = calloc(1, sizeof(*p)))) {
		memcpy(p->key, key, sizeof(key));
		net_peer_name(a, p->name);
		for (int i = 0; i < POOL_CLASSES; i++)
			p->work[i].last = &p->work[i].first;
		p->next = *bucket;
		*bucket = p;
	}
	if (p)
		p->refs++;
	pthread_mutex_unlock(&n->lock);
	return p;
}

struct net_peer *net_peer_ref(struct net *n, struct net_peer *p)
{
	pthread_mutex_lock(&n->lock);
	p->refs++;
	pthread_mutex_unlock(&n->lock);
	return p;
}

void net_peer_put(struct net *n, struct net_peer *p)
{
	struct net_peer **at;

	if (!p)
		return;
	pthread_mutex_lock(&n->lock);
	if (!--p->refs) {
		for (at = bucket_of(n, p->key); *at != p; at = &(*at)->next)
			;
		*at = p->next;
		free(p);
	}
	pthread_mutex_unlock(&n->lock);
}
