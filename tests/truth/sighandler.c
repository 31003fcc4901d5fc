/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spends time in signal handlers: on the interrupted stack and on a stack of their own, from a
 * timer that interrupts spin(), from a signal that the program sends itself, and in nested
 * handlers.
 */
#include "truth.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

NOINLINE void handler_work(void)
{
	TRUTH();
	spin(300000);
}

NOINLINE void on_usr2(int sig)
{
	TRUTH();
	handler_work();
}

NOINLINE void on_usr1(int sig)
{
	TRUTH();
	handler_work();
	raise(SIGUSR2);
}

NOINLINE void on_timer(int sig)
{
	TRUTH();
	handler_work();
}

NOINLINE void work(void)
{
	TRUTH();
	spin(3000000);
	raise(SIGUSR1);
}

int main(int argc, char **argv)
{
	stack_t ss = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	struct sigaction alt = {.sa_handler = on_timer, .sa_flags = SA_ONSTACK | SA_RESTART};
	struct sigaction usr1 = {.sa_handler = on_usr1};
	struct sigaction usr2 = {.sa_handler = on_usr2, .sa_flags = SA_ONSTACK};
	/* Rare enough that it hardly ever interrupts another function than spin(). */
	struct itimerval every = {.it_interval = {.tv_usec = 7000}, .it_value = {.tv_usec = 7000}};

	truth_init(argc, argv);
	TRUTH();
	sigaltstack(&ss, NULL);
	sigaction(SIGPROF, &alt, NULL);
	sigaction(SIGUSR1, &usr1, NULL);
	sigaction(SIGUSR2, &usr2, NULL);
	setitimer(ITIMER_PROF, &every, NULL);
	while (truth_running())
		work();
	every.it_interval.tv_usec = every.it_value.tv_usec = 0;
	setitimer(ITIMER_PROF, &every, NULL);
	truth_finish();
	return 0;
}
