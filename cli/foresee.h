/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Maps the code that a command is going to run into the calling process, which will become the
 * command or start it. culprit then knows, learns and loads that code before its first sample. Code
 * that cannot be predicted is left out. argv ends with NULL. Main thread, before the exec.
 */
void foresee_command(const char *const *argv);
