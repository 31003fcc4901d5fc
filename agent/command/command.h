/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command that a recording samples from its first instruction on. The child maps the code that it
 * will run (foresee.h) and waits; the recording loads that code and starts; then the child runs the
 * command.
 *
 *	create → wait → start → poll … → end
 *
 * One thread. Functions that return int return 0 or a negative errno, and set the text of
 * `reterr_diag`.
 */
#pragma once

#include "base/diag.h"
#include "base/types.h"

struct command;

/*
 * Forks. argv ends with NULL; `search` is the PATH of execvp(), or NULL. Both are borrowed for the
 * call.
 */
int command_create(char *const *argv, const char *search, struct diag *reterr_diag,
		   struct command **ret);
u32 command_pid(const struct command *c);
/* Waits until the child has mapped the code that it will run. */
int command_wait(struct command *c, struct diag *reterr_diag);
/* CPU time that the child and what it has started had used when command_wait() returned. */
struct command_usage {
	double user_s, sys_s;
};
struct command_usage command_usage_before(const struct command *c);
/* Runs the command. -ENOENT: no such program; other errors: it cannot be executed. */
int command_start(struct command *c, struct diag *reterr_diag);
/* Whether the command has ended. Does not wait. */
bool command_poll(struct command *c);
/*
 * Waits for the end of the child and returns the status of waitpid(). A child that has not run the
 * command ends by itself; `terminate`: a command that still runs gets SIGTERM. NULL: returns 0.
 */
int command_end(struct command *c, bool terminate);
