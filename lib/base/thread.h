/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "base/types.h"

/* Starts a thread that blocks all signals. `name` has at most 15 bytes. Negative errno. */
int thread_start(pthread_t *ret, const char *name, void *(*fn)(void *arg), void *arg);
/* Initializes a lock, and a condition whose timeouts use CLOCK_MONOTONIC. */
void thread_sync_init(pthread_mutex_t *lock, pthread_cond_t *wake);
/* Waits for the condition; the caller holds the lock. Returns false after the timeout. */
bool thread_wait(pthread_cond_t *wake, pthread_mutex_t *lock, u64 timeout_ns);
