/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program with two interpreters of Perl, each in a thread of its own, as mod_perl has them.
 * Each thread calls another sub of the script over and over: embed SCRIPT.
 */
#include <EXTERN.h>
#include <perl.h>
#include <pthread.h>
#include <stdio.h>

static PerlInterpreter *create(char *script)
{
	char *arguments[] = {"embed", script, NULL};
	PerlInterpreter *my_perl = perl_alloc();

	PERL_SET_CONTEXT(my_perl);
	perl_construct(my_perl);
	if (perl_parse(my_perl, NULL, 2, arguments, NULL))
		exit(1);
	return my_perl;
}

__attribute__((noinline)) void host_calls_perl(PerlInterpreter *my_perl, const char *sub)
{
	dSP;

	PUSHMARK(SP);
	call_pv(sub, G_DISCARD | G_NOARGS);
	__asm__ volatile(""); /* no tail call */
}

static void *first(void *my_perl)
{
	PERL_SET_CONTEXT(my_perl);
	for (;;)
		host_calls_perl(my_perl, "first");
}

int main(int argc, char **argv, char **environment)
{
	PerlInterpreter *a, *b;
	pthread_t thread;

	PERL_SYS_INIT3(&argc, &argv, &environment);
	a = create(argv[1]);
	b = create(argv[1]);
	pthread_create(&thread, NULL, first, a);
	printf("ready\n");
	fflush(stdout);
	for (;;)
		host_calls_perl(b, "second");
}
