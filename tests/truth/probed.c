/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that call a short function all the time, from chains of different depths, half of them at
 * a higher priority: samples at that function preempt each other.
 */
#include "truth.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 8

NOINLINE void probed_leaf(void)
{
	TRUTH();
	__asm__ volatile("" ::: "memory");
}

NOINLINE void descend(long n)
{
	TRUTH();
	if (n) {
		descend(n - 1);
		__asm__ volatile("" ::: "memory");
		return;
	}
	while (truth_running())
		probed_leaf();
}

NOINLINE void *thread_probed(void *arg)
{
	TRUTH();
	long i = (intptr_t)arg;

	if (i & 1)
		setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), -5);
	descend(1 + 6 * i);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[THREADS];

	truth_init(argc, argv);
	TRUTH();
	for (intptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, thread_probed, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	truth_finish();
	return 0;
}
