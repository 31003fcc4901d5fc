/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that run handlers, shared by all listeners. Questions and writes have threads and
 * places in the queue of their own, so that neither waits for the other. Within a class clients
 * take turns, and one client holds at most half of the threads and half of the places.
 *
 * Threads start when there is work for them, and stay.
 */
#pragma once

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/types.h"

enum pool_class { POOL_READ, POOL_WRITE, POOL_CLASSES };

struct net_peer;

struct pool_job {
	struct pool_job *next;
	struct net_peer *peer; /* alive until done() */
	void (*run)(struct pool_job *j);
	void (*done)(struct pool_job *j); /* after run(): the pool has forgotten the job */
};

/* The jobs of one client in one class: under the lock of the pool. */
struct pool_work {
	struct pool_job *first, **last;
	u32 queued, running;
	TAILQ_ENTRY(net_peer) turn; /* among clients with queued jobs */
};

/* A client: an address. */
struct net_peer {
	struct net_peer *next; /* in its bucket */
	u32 refs;	       /* under the lock of struct net */
	atomic_uint open;      /* connections */
	u8 key[16];
	char name[64];
	struct pool_work work[POOL_CLASSES];
};

struct pool_stats {
	u32 threads, busy, queued;
};

struct net_pool;

int pool_create(struct net_pool **ret);
/* Runs what is queued, and waits for it. */
void pool_destroy(struct net_pool *p);
/* -EBUSY: all places in the queue are taken, by all clients or by this one. */
int pool_submit(struct net_pool *p, enum pool_class class, struct pool_job *j);
void pool_stats(struct net_pool *p, enum pool_class class, struct pool_stats *ret);
