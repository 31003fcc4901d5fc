/* SPDX-License-Identifier: Apache-2.0 */
/* A library of functions for nif.erl: each spins for some milliseconds in nif_spin(). */
#include <erl_nif.h>
#include <time.h>

__attribute__((noinline)) static unsigned nif_spin(unsigned ms)
{
	struct timespec start, now;
	volatile unsigned n = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (int i = 0; i < 1000; i++)
			n++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 <
		 (long)ms);
	return n;
}

static ERL_NIF_TERM spin(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
{
	unsigned ms;

	if (argc != 1 || !enif_get_uint(env, argv[0], &ms))
		return enif_make_badarg(env);
	return enif_make_uint(env, nif_spin(ms));
}

static ErlNifFunc functions[] = {
	{"normal", 1, spin, 0},
	{"dirty_cpu", 1, spin, ERL_NIF_DIRTY_JOB_CPU_BOUND},
	{"dirty_io", 1, spin, ERL_NIF_DIRTY_JOB_IO_BOUND},
};

ERL_NIF_INIT(nif, functions, NULL, NULL, NULL, NULL)
