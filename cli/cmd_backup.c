/* SPDX-License-Identifier: Apache-2.0 */
/* culprit server backup, culprit server restore: copies a store to a directory, and back. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "server/store/store.h"

struct backup_arguments {
	const char *data_dir, *store;
};

#define A struct backup_arguments
static const struct option backup_options[] = {
	OPTION_STRING("data-dir", 0, "DIR", A, data_dir, "the --data-dir of the server"),
	OPTION_STRING("store", 0, "URL", A, store, "the --store of the server: sqlite://DIR"),
	{},
};
#undef A

static void show_progress(void *userdata, const char *file, u64 done, u64 all)
{
	int *shown = userdata, percent = all ? (int)(done * 100 / all) : 100;

	if (percent == *shown)
		return;
	*shown = percent;
	fprintf(stderr, "\r\033[K%s %d %%", file, percent);
}

/* Parses the options and the one operand. Returns the exit status, or -1 to go on. */
static int parse(const struct option_usage *u, int argc, char **argv,
		 const struct backup_arguments *a, const char **ret_url, const char **ret_dir)
{
	int first, r = options_parse(u, argc, argv, &first);

	if (r != 0)
		return r < 0 ? 2 : 0;
	if (!a->data_dir == !a->store)
		return cli_error(2, "%s: give either --data-dir or --store", u->command);
	if (first + 1 != argc)
		return cli_error(2, "%s: give one directory of a backup; see culprit %s --help",
				 u->command, u->command);
	*ret_url = a->data_dir ? a->data_dir : a->store;
	*ret_dir = argv[first];
	return -1;
}

static struct store_progress progress_on_terminal(int *shown)
{
	*shown = -1;
	return (struct store_progress){isatty(STDERR_FILENO) ? show_progress : NULL, shown};
}

static int end(const struct store_progress *p, const char *command, int r, const struct diag *d)
{
	if (p->fn)
		fprintf(stderr, "\r\033[K");
	return r < 0 ? cli_error(1, "%s: %s", command, d->text[0] ? d->text : strerror(-r)) : 0;
}

/* The path without slashes at its end. */
static void without_slashes(const char *path, struct str *ret)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	str_append(ret, path, n);
}

int cmd_server_backup(int argc, char **argv)
{
	struct backup_arguments a = {};
	const struct option_group groups[] = {{NULL, backup_options, &a}, {}};
	const struct option_usage usage = {
		.command = "server backup",
		.operands = "DEST",
		.summary = "Copies the store of a server, running or not, into the new directory "
			   "DEST: profiles, spans, symbols.\nThe copy is of one moment, and is "
			   "verified. Restore it with culprit server restore.",
		.groups = groups,
	};
	_cleanup_str_ struct str to = {};
	const char *url = "", *dest = "";
	struct store_progress p;
	struct diag d = {};
	int shown, r = parse(&usage, argc, argv, &a, &url, &dest);

	if (r >= 0)
		return r;
	p = progress_on_terminal(&shown);
	without_slashes(dest, &to);
	r = end(&p, "server backup", store_backup(url, str_get(&to), &p, &d), &d);
	if (r == 0)
		printf("%s has a verified copy of the store\n", str_get(&to));
	return r;
}

int cmd_server_restore(int argc, char **argv)
{
	struct backup_arguments a = {};
	const struct option_group groups[] = {{NULL, backup_options, &a}, {}};
	const struct option_usage usage = {
		.command = "server restore",
		.operands = "SRC",
		.summary = "Makes a store of a backup: copies SRC into a data directory that is "
			   "empty or missing, and verifies it.\nStart a server on this directory "
			   "afterwards.",
		.groups = groups,
	};
	const char *url = "", *source = "";
	struct store_progress p;
	struct diag d = {};
	int shown, r = parse(&usage, argc, argv, &a, &url, &source);

	if (r >= 0)
		return r;
	p = progress_on_terminal(&shown);
	r = end(&p, "server restore", store_restore(source, url, &p, &d), &d);
	if (r == 0)
		printf("%s has the store of the backup; start a server on it\n", url);
	return r;
}
