/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, one per cmd_NAME.c; main.c has the table. */
#pragma once

int cmd_doctor(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_top(int argc, char **argv);
