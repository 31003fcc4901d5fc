/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/pipeline/passing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "proc/proc.h"

static int add_cgroup(struct passing *p, const char *path, struct diag *reterr_diag)
{
	_cleanup_close_ int fd = sampler_open_cgroup(path, reterr_diag);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return diag_set(reterr_diag, -errno, "cannot read '%s': %s", path, strerror(errno));
	return vec_push(&p->cgroups, (struct passing_cgroup){st.st_dev, st.st_ino});
}

int passing_init(struct passing *p, const struct sampler_options *o, struct diag *reterr_diag)
{
	int r = 0;

	*p = (struct passing){};
	for (u32 i = 0; i < o->n_comms && r == 0; i++) {
		struct passing_name name = {};

		strncpy(name.comm, o->comms[i], sizeof(name.comm) - 1);
		r = vec_push(&p->comms, name);
	}
	for (u32 i = 0; i < o->n_uids && r == 0; i++)
		r = vec_push(&p->uids, o->uids[i]);
	for (u32 i = 0; i < o->n_cgroups && r == 0; i++)
		r = add_cgroup(p, o->cgroups[i], reterr_diag);
	if (r < 0)
		passing_deinit(p);
	return r;
}

void passing_deinit(struct passing *p)
{
	vec_deinit(&p->comms);
	vec_deinit(&p->uids);
	vec_deinit(&p->cgroups);
}

static bool has_name(const struct passing *p, const char *comm)
{
	vec_foreach (&p->comms, name)
		if (strncmp(name->comm, comm, sizeof(name->comm)) == 0)
			return true;
	return false;
}

static bool has_user(const struct passing *p, u32 pid)
{
	struct proc_status s;

	if (proc_status_read(pid, &s) < 0)
		return true;
	vec_foreach (&p->uids, uid)
		if (*uid == s.real_uid)
			return true;
	return false;
}

static bool is_chosen(const struct passing *p, const struct stat *st)
{
	vec_foreach (&p->cgroups, g)
		if (g->dev == st->st_dev && g->inode == st->st_ino)
			return true;
	return false;
}

/* Whether the path below `root` leads to a cgroup that was chosen, or through one. */
static int leads_to(const struct passing *p, const char *root, const char *path)
{
	_cleanup_str_ struct str full = {};
	char *slash, *below;
	struct stat st;

	if (str_printf(&full, "%s%s", root, path) < 0 || stat(str_get(&full), &st) < 0)
		return -ENOENT;
	below = full.data + strlen(root);
	while (!is_chosen(p, &st)) {
		slash = strrchr(below, '/');
		if (!slash)
			return false;
		*slash = '\0';
		if (stat(full.data, &st) < 0)
			return -ENOENT;
	}
	return true;
}

static bool is_below(const struct passing *p, u32 pid)
{
	static const char *const roots[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
	_cleanup_str_ struct str path = {};
	int r = proc_cgroup_unified_read(pid, &path);

	if (r < 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		r = leads_to(p, roots[i], str_get(&path));
		if (r >= 0)
			return r;
	}
	return true;
}

bool passing_now(const struct passing *p, u32 pid, const char comm[SAMPLE_COMM_BYTES])
{
	return (!p->comms.n || has_name(p, comm)) && (!p->uids.n || has_user(p, pid)) &&
	       (!p->cgroups.n || is_below(p, pid));
}
