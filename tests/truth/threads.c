/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, some that live as long as the program and some that live for milliseconds. */
#include "truth.h"

#include <pthread.h>
#include <stddef.h>

NOINLINE void thread_leaf(long n)
{
	TRUTH();
	spin(n);
}

NOINLINE void thread_work(long n)
{
	TRUTH();
	thread_leaf(n);
}

NOINLINE void *thread_long(void *arg)
{
	TRUTH();
	while (truth_running())
		thread_work(300000);
	return NULL;
}

NOINLINE void *thread_short(void *arg)
{
	TRUTH();
	thread_work(500000);
	return NULL;
}

NOINLINE void starts(void)
{
	TRUTH();
	pthread_t t;

	if (!pthread_create(&t, NULL, thread_short, NULL))
		pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	pthread_t t[2];

	truth_init(argc, argv);
	TRUTH();
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, thread_long, NULL);
	while (truth_running())
		starts();
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	truth_finish();
	return 0;
}
