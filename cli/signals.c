/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t ended, reload;

static void on_end(int signo)
{
	(void)signo;
	ended = 1;
}

static void on_hangup(int signo)
{
	(void)signo;
	reload = 1;
}

void signals_catch_end(void)
{
	struct sigaction act = {.sa_handler = on_end};

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool signals_ended(void)
{
	return ended;
}

void signals_catch_reload(void)
{
	struct sigaction act = {.sa_handler = on_hangup};

	sigaction(SIGHUP, &act, NULL);
}

bool signals_reload_wanted(void)
{
	bool wanted = reload;

	reload = 0;
	return wanted;
}
