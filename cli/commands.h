/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, one per cmd_NAME.c; main.c has the table. */
#pragma once

struct str;
/* Appends the table of profile formats for --help. */
void cli_formats_text(struct str *out);

int cmd_agent(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_ctl(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_latency(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_parsers(int argc, char **argv);
int cmd_record(int argc, char **argv);
int cmd_stackprobe(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_symbols(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_server(int argc, char **argv);
/* `culprit server backup` and `culprit server restore`; argv[0] is the last word. */
int cmd_server_backup(int argc, char **argv);
int cmd_server_restore(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_up_server(int argc, char **argv);
