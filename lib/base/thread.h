/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "base/types.h"

/* Signals are for the thread that made it; name: 15 bytes at most. Negative errno. */
int thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg);
/* A lock, and a condition that waits by CLOCK_MONOTONIC. */
void thread_sync_init(pthread_mutex_t *lock, pthread_cond_t *wake);
/* Waits for the signal, at most so long; false: it did not come. Under the lock. */
bool thread_wait(pthread_cond_t *wake, pthread_mutex_t *lock, u64 timeout_ns);
