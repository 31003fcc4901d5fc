/* SPDX-License-Identifier: Apache-2.0 */
/* `culprit ctl flamegraph`: the configuration of `culprit stackprobe`, as `gopher-ctl probe`. */
#include <jansson.h>
#include <stdio.h>

#include "cli/ctl.h"

static int put_words(const struct ctl_arguments *a, int n, char **words, struct str *out)
{
	(void)a;
	(void)n;
	str_puts(out, words[0]);
	return 0;
}

static void print_all(const json_t *answer)
{
	json_dumpf(answer, stdout, JSON_COMPACT);
	putchar('\n');
}

static void print_message(const json_t *answer)
{
	printf("%s\n", ctl_text(answer, "message"));
}

const struct ctl_verb ctl_flamegraph_verbs[] = {
	{"flamegraph", "get", "GET", "/flamegraph", 0, 0, NULL, print_all},
	{"flamegraph", "set", "PUT", "/flamegraph", 1, 1, put_words, print_message},
	{"flamegraph", "delete", "DELETE", "/flamegraph", 0, 0, NULL, print_message},
	{},
};
