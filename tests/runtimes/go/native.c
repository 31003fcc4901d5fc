// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include "_cgo_export.h"

int c_outer(int n);
int c_inner(int n);
unsigned long c_spin(int n);
void c_thread(int n);

static int c_call(int (*fn)(int), int n)
{
	return fn(n) + 1;
}

int c_inner(int n)
{
	return c_call(n < 0 ? goSystem : goLeaf, n) + 1;
}

int c_outer(int n)
{
	return c_call(goMiddle, n) + 1;
}

unsigned long c_spin(int n)
{
	unsigned long x = 88172645463325252;

	for (int i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

static void *c_thread_start(void *arg)
{
	for (;;)
		c_call(goFromThread, *(int *)arg);
	return arg;
}

void c_thread(int n)
{
	pthread_t thread;

	pthread_create(&thread, 0, c_thread_start, &n);
	pthread_join(thread, 0);
}
