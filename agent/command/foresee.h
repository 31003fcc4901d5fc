/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Maps the code that a command is going to run into the calling process, which will become the
 * command. The agent then finds, analyses and loads that code before its first sample. Code that
 * cannot be predicted is left out. argv ends with NULL; `search` is the PATH in which execvp()
 * finds programs, or NULL. In a process of one thread, before the exec.
 */
void foresee_command(const char *const *argv, const char *search);
