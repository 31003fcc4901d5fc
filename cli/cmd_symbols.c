/* SPDX-License-Identifier: Apache-2.0 */
/* culprit symbols: uploads symbols to a server, and lists those it has and lacks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "http/http.h"
#include "proc/proc.h"
#include "profile/profile.h"
#include "server/client/client.h"

#define DEFAULT_SERVER "http://127.0.0.1:7788"
#define MAX_DEPTH 32

struct symbols_arguments {
	const char *server, *token_file, *ca, *pids, *from;
	bool force, replace;
};

#define A struct symbols_arguments
static const struct option symbols_options[] = {
	OPTION_STRING("server", 0, "URL", A, server, "the server (default " DEFAULT_SERVER ")"),
	OPTION_STRING("token-file", 0, "FILE", A, token_file,
		      "send the token in the first line of this file"),
	OPTION_STRING("ca", 0, "FILE", A, ca,
		      "verify the server's certificate against this CA (PEM)"),
	OPTION_STRING("pid", 'p', "PID,...", A, pids,
		      "push: the symbols of all files that these processes have mapped"),
	OPTION_FLAG("replace", 0, A, replace,
		    "push: replace files and the names they gave, as an admin"),
	OPTION_FLAG("force", 0, A, force, "push: send files that the server already has, too"),
	OPTION_STRING("from", 0, "TIME", A, from,
		      "list: consider frames from this time on, such as now-1d (default now-1h)"),
	{},
};
#undef A

/* ---- push ---- */

static void print_sent(const char *build_id, const char *path, u64 bytes)
{
	printf("%s %s (%.1f MiB)\n", build_id, path, (double)bytes / (1 << 20));
}

/* `chosen`: the user named this file, so that it is an error if it has no symbols. */
static int push_file(struct client *c, int fd, const char *path, bool chosen)
{
	struct diag d = {};
	int r = client_push(c, fd, path, &d);

	if (r == 0 || (r == -ENODATA && !chosen))
		return 0;
	return cli_error(1, "symbols: %s", d.text);
}

static int push_path(struct client *c, int at, const char *name, const char *path, u32 depth);

static int push_folder(struct client *c, int fd, const char *path, u32 depth)
{
	DIR *d = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!d) {
		close(fd);
		return cli_error(1, "symbols: cannot read %s: %s", path, strerror(errno));
	}
	while ((e = readdir(d))) {
		_cleanup_str_ struct str inner = {};

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || depth >= MAX_DEPTH)
			continue;
		str_printf(&inner, "%s/%s", path, e->d_name);
		r |= push_path(c, dirfd(d), e->d_name, str_get(&inner), depth + 1);
	}
	closedir(d);
	return r;
}

/* At depth 0, a path that the user gave: symbolic links are followed. */
static int push_path(struct client *c, int at, const char *name, const char *path, u32 depth)
{
	int fd = openat(at, name,
			O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (depth ? O_NOFOLLOW : 0));
	struct stat st;

	if (fd < 0 && depth)
		return 0; /* a symbolic link, or not readable */
	if (fd < 0 || fstat(fd, &st) < 0) {
		int error = errno;

		cleanup_close(&fd);
		return cli_error(1, "symbols: cannot read %s: %s", path, strerror(error));
	}
	if (S_ISDIR(st.st_mode))
		return push_folder(c, fd, path, depth);
	if (S_ISREG(st.st_mode))
		return push_file(c, fd, path, depth == 0);
	close(fd);
	return depth ? 0 : cli_error(1, "symbols: %s is neither a file nor a directory", path);
}

struct pushing {
	struct client *c;
	u32 pid;
	int status;
};

static int push_mapping(void *arg, const struct proc_mapping *m)
{
	struct pushing *p = arg;
	struct proc_file file;

	if (m->path[0] == '/' && proc_open_mapped_file(p->pid, m, &file) == 0)
		p->status |= push_file(p->c, file.fd, m->path, false);
	return 0;
}

static int push_pids(struct client *c, const char *list)
{
	_cleanup_free_ char *text = strdup(list);
	char *save = NULL;
	int status = 0;

	for (char *item = text ? strtok_r(text, ",", &save) : NULL; item;
	     item = strtok_r(NULL, ",", &save)) {
		struct pushing p = {.c = c};
		u64 pid;
		int r;

		if (str_to_u64(item, 10, &pid) < 0 || !pid || pid > 0x7fffffff)
			return cli_error(2, "symbols: '%s' is not a process id", item);
		p.pid = (u32)pid;
		r = proc_maps_read(p.pid, 0, push_mapping, &p);
		if (r < 0)
			p.status = cli_error(1, "symbols: process %u: %s", p.pid,
					     r == -ESRCH ? "no such process" : strerror(-r));
		status |= p.status;
	}
	return status;
}

static int push(const struct symbols_arguments *a, struct client *c, int n, char **paths)
{
	struct client_stats st;
	int status = 0;

	if (!n && !a->pids)
		return cli_error(2,
				 "symbols push: nothing to push; give files, directories or --pid");
	if (a->pids)
		status = push_pids(c, a->pids);
	for (int i = 0; i < n; i++)
		status |= push_path(c, AT_FDCWD, paths[i], paths[i], 0);
	st = client_stats(c);
	printf("%llu sent (%.1f MiB), %llu already there, %llu without symbols or build-id, "
	       "%llu failed\n",
	       st.sent, (double)st.bytes / (1 << 20), st.known, st.useless, st.failed);
	return status;
}

/* ---- list ---- */

static const char *text_of(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "";
}

static void print_list(const json_t *answer)
{
	const json_t *files = json_object_get(answer, "files"), *e;
	const json_t *missing = json_object_get(answer, "missing");
	size_t i;

	json_array_foreach(files, i, e)
	{
		json_int_t bytes = json_integer_value(json_object_get(e, "bytes"));

		if (!bytes && !*text_of(e, "note"))
			continue;
		printf("%-40s %8.1f MiB  %-12s %s%s%s\n", text_of(e, "build_id"),
		       (double)bytes / (1 << 20), text_of(e, "has"), text_of(e, "path"),
		       *text_of(e, "note") ? "  " : "", text_of(e, "note"));
	}
	if (json_array_size(missing))
		printf("\nwithout names:\n");
	json_array_foreach(missing, i, e)
	{
		const char *id = text_of(e, "build_id");

		if (!*id || str_starts(id, PROFILE_HTLHASH))
			id = "(no build-id)";
		printf("%-40s %8lld samples  %s\n", id,
		       (long long)json_integer_value(json_object_get(e, "samples")),
		       text_of(e, "path"));
	}
}

static int list_files(const struct symbols_arguments *a, struct client *c)
{
	_cleanup_str_ struct str path = {}, body = {};
	struct diag d = {};
	json_t *answer;

	if (a->from && strpbrk(a->from, "&#?% "))
		return cli_error(2, "symbols: --from: '%s' is not a time", a->from);
	str_printf(&path, "/symbols?from=%s", a->from ? a->from : "now-1h");
	if (client_get(c, str_get(&path), &d, &body) < 0)
		return cli_error(1, "symbols: %s", d.text);
	answer = json_loadb(str_get(&body), body.n, 0, NULL);
	if (!answer)
		return cli_error(1, "symbols: %s is not a culprit server: its answer is not JSON",
				 a->server ? a->server : DEFAULT_SERVER);
	print_list(answer);
	json_decref(answer);
	return 0;
}

int cmd_symbols(int argc, char **argv)
{
	struct symbols_arguments a = {};
	const struct option_group groups[] = {{NULL, symbols_options, &a}, {}};
	const struct option_usage usage = {
		.command = "symbols",
		.operands = "push|list [FILE|DIR...]",
		.summary =
			"push: uploads the symbols of binaries; the server then names the frames "
			"of these binaries,\nstored and new. list: prints the symbol files that the "
			"server has, and the binaries whose\nframes have no names.",
		.groups = groups,
	};
	_cleanup_free_ char *token = NULL;
	struct client *c = NULL;
	struct diag d = {};
	int first, r = options_parse(&usage, argc, argv, &first);
	bool pushes, lists;

	if (r != 0)
		return r < 0 ? 2 : 0;
	pushes = first < argc && !strcmp(argv[first], "push");
	lists = first + 1 == argc && !strcmp(argv[first], "list");
	if (!pushes && !lists)
		return cli_error(2, "symbols: give push FILE|DIR... or list");
	if (a.token_file && http_client_token(a.token_file, &d, &token) < 0)
		return cli_error(1, "%s", d.text);
	if (client_create(&(struct client_options){.server = a.server ? a.server : DEFAULT_SERVER,
						   .token = token,
						   .ca = a.ca,
						   .force = a.force || a.replace,
						   .replace = a.replace,
						   .sent = print_sent},
			  &d, &c) < 0)
		return cli_error(1, "symbols: %s", d.text);
	r = pushes ? push(&a, c, argc - first - 1, argv + first + 1) : list_files(&a, c);
	client_destroy(c);
	return r;
}
