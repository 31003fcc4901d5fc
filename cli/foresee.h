/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Maps the code that a command is going to run, into the process that calls this and will become
 * the command, or start it: so it is known, learned and loaded before the first sample of it. What
 * cannot be foreseen is left out. argv ends with NULL.
 */
void foresee_command(const char *const *argv);
