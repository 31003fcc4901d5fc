/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Maps the code that a command is going to run, into the process that calls this and will become
 * the command: so it is known, learned and loaded before the first sample of it. What cannot be
 * foreseen is left out.
 */
void foresee_command(const char *name);
