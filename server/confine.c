/* SPDX-License-Identifier: Apache-2.0 */
/* What the process of a server may use, by its options: for lib/sandbox. */
#include <dirent.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/server.h"

struct places {
	struct sandbox_options may;
	char text[SANDBOX_MAX_PLACES][256]; /* of may.read */
	char logs[2][256];		    /* folders of logs, of may.write */
	u32 n_logs;
};

static void may_read(struct places *p, const char *path)
{
	char *copy;

	if (p->may.n_read == SANDBOX_MAX_PLACES || strlen(path) >= sizeof(p->text[0]))
		return;
	copy = p->text[p->may.n_read];
	snprintf(copy, sizeof(p->text[0]), "%s", path);
	p->may.read[p->may.n_read++] = copy;
}

/* The folder, because the next version of the file may be another file. */
static void may_read_folder_of(void *arg, const char *path)
{
	struct places *p = arg;
	char copy[PATH_MAX];

	if (!path || strlen(path) >= sizeof(copy))
		return;
	snprintf(copy, sizeof(copy), "%s", path);
	may_read(p, dirname(copy));
}

/* The folders of --source-roots. */
static void may_read_roots(struct places *p, const char *roots)
{
	while (*roots) {
		size_t n = strcspn(roots, ":");
		char root[256];

		if (n && n < sizeof(root)) {
			memcpy(root, roots, n);
			root[n] = '\0';
			may_read(p, root);
		}
		roots += n + (roots[n] == ':');
	}
}

/* Without roots, source files and programs may be in any folder but some. */
static void may_read_sources(struct places *p)
{
	DIR *d = opendir("/");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[sizeof(e->d_name) + 1];

		snprintf(path, sizeof(path), "/%s", e->d_name);
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && api_shows_folder(path))
			may_read(p, path);
	}
	if (d)
		closedir(d);
}

/* The names of other machines, their certificates, and passwords for them. */
static void may_connect(struct places *p)
{
	p->may.connects = true;
	may_read(p, "/etc");
	may_read(p, "/run/systemd/resolve");
	may_read(p, "/run/secrets");
}

static int may_write(struct places *p, const char *dir, struct diag *reterr_diag)
{
	if (!dir)
		return 0;
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return diag_set(reterr_diag, -errno, "cannot create %s: %s", dir, strerror(errno));
	p->may.write[p->may.n_write++] = dir;
	return 0;
}

/* The folder of a log that may be renamed, and begun anew. */
static int may_write_log(struct places *p, const char *path, struct diag *reterr_diag)
{
	char copy[PATH_MAX];
	char *dir = p->logs[p->n_logs];

	if (!path || !strcmp(path, "-") || strlen(path) >= sizeof(p->logs[0]))
		return 0;
	snprintf(copy, sizeof(copy), "%s", path);
	snprintf(dir, sizeof(p->logs[0]), "%s", dirname(copy));
	p->n_logs++;
	return may_write(p, dir, reterr_diag);
}

/* Names the first directory on the way that the user may not enter. */
static int check_way(const char *dir, struct diag *reterr_diag)
{
	char way[PATH_MAX];
	size_t n = strlen(dir);

	if (n >= sizeof(way) || access(dir, R_OK | W_OK | X_OK) == 0 || errno != EACCES)
		return 0;
	for (size_t i = 1; i <= n; i++) {
		if (dir[i] != '/' && dir[i])
			continue;
		memcpy(way, dir, i);
		way[i] = '\0';
		if (access(way, X_OK) < 0)
			break;
	}
	return diag_set(reterr_diag, -EACCES,
			"%s: user %u, as whom the server runs, may not enter %s: name another "
			"directory, or a user who may with --user",
			dir, geteuid(), way);
}

int server_confine(const struct server_options *o, bool secrets, struct diag *reterr_diag)
{
	const char *store = store_directory(o->store);
	struct places p = {};
	int r = store ? check_way(store, reterr_diag) : 0;

	if (r == 0 && o->symbols.dir)
		r = check_way(o->symbols.dir, reterr_diag);
	if (r == 0)
		r = may_write(&p, store, reterr_diag);
	if (r == 0)
		r = may_write(&p, o->symbols.dir, reterr_diag);
	if (r == 0)
		r = may_write_log(&p, o->access_log, reterr_diag);
	if (r == 0)
		r = may_write_log(&p, o->audit_log, reterr_diag);
	if (r < 0)
		return r;
	may_read(&p, "/etc/localtime");
	if (!store || o->symbols.debuginfod_urls)
		may_connect(&p);
	store_each_file(o->store, may_read_folder_of, &p);
	if (secrets) {
		may_read_folder_of(&p, o->tls.cert);
		may_read_folder_of(&p, o->tls.key);
		may_read_folder_of(&p, o->tls.client_ca);
		may_read_folder_of(&p, o->tokens);
	}
	if (o->source_roots)
		may_read_roots(&p, o->source_roots);
	else
		may_read_sources(&p);
	return sandbox_enter(&p.may, reterr_diag);
}

int server_give_directories(const struct server_options *o, uid_t uid, gid_t gid,
			    struct diag *reterr_diag)
{
	const char *store = store_directory(o->store);
	int r = store ? sandbox_give_directory(store, uid, gid, reterr_diag) : 0;

	if (r == 0 && o->symbols.dir)
		r = sandbox_give_directory(o->symbols.dir, uid, gid, reterr_diag);
	return r;
}
