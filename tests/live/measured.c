/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program whose calls are known: how many, how long, with which arguments. `measured N` makes N
 * rounds in two threads and prints what happened.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

enum color { RED, GREEN = 7, BLUE = -1 };
struct point {
	int x;
	const char *label;
	struct {
		short inner;
	};
	unsigned int bits : 3, more : 5;
};
struct pair {
	long a, b;
};
struct big {
	long a[5];
};
struct mixed {
	double a;
	long b;
};

static char text[] = "a text";

NOINLINE int nap(int ms, const char *why)
{
	struct timespec t = {0, ms * 1000000L};

	nanosleep(&t, NULL);
	KEEP;
	return ms - (int)strlen(why);
}

NOINLINE long recursive(int n)
{
	long r = n ? recursive(n - 1) + 1 : 0;

	KEEP;
	return r;
}

static _Thread_local jmp_buf back;

NOINLINE void leaps(int n)
{
	KEEP;
	if (n % 2)
		longjmp(back, 1);
	KEEP;
}

/* Its frame is where that of leaps() was. */
NOINLINE int after_leap(int n)
{
	KEEP;
	return n;
}

NOINLINE int ints(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned int f,
		  long g, unsigned long h)
{
	KEEP;
	return (int)(a + b + c + d + e + (long)f + g + (long)h);
}

NOINLINE bool kinds(bool yes, enum color c, const char *s, const struct point *p, double d, float f,
		    uint64_t last)
{
	KEEP;
	return !yes && d > f && p && s && c && last;
}

NOINLINE long structs(struct pair p, struct big b, struct mixed m, int behind)
{
	KEEP;
	return p.a + b.a[0] + m.b + behind;
}

NOINLINE struct big returns_big(int n)
{
	KEEP;
	return (struct big){{n}};
}

NOINLINE enum color color(const char *s)
{
	KEEP;
	return s ? BLUE : RED;
}

NOINLINE short negative(void)
{
	KEEP;
	return -5;
}

NOINLINE void nothing(void)
{
	KEEP;
}

NOINLINE double real(double d)
{
	KEEP;
	return d;
}

/* Static, with one caller and a constant argument: gcc may make a copy without it. */
static NOINLINE int twice(int n)
{
	KEEP;
	return 2 * n;
}

static long sum;

static void leap_round(int n)
{
	if (!setjmp(back))
		leaps(n);
	sum += after_leap(n);
}

static void *rounds(void *arg)
{
	struct point p = {42, text, {-3}, 5, 17};
	int n = *(int *)arg;

	for (int i = 0; i < n; i++) {
		sum += recursive(9);
		leap_round(i);
		sum += ints(-1, 255, -2, 65535, -3, 4000000000U, -4, ~0UL);
		sum += kinds(true, BLUE, text, &p, 1.5, 2.5F, 77);
		sum += structs((struct pair){1, 2}, (struct big){{1}}, (struct mixed){1.0, 2}, 99);
		sum += returns_big(5).a[0];
		sum += color(text);
		sum += negative();
		sum += (long)real(1.5);
		sum += twice(i);
		nothing();
	}
	for (int i = 0; i < 5; i++)
		sum += nap(i == 3 ? 60 : 2, text);
	return NULL;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 100;
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, rounds, &n);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("sum %ld\n", sum);
	return 0;
}
