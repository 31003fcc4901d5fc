/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the values that a script prints: kernel and user addresses, cgroups, constants of
 * enums. What was found is kept, because scripts print the same values often.
 */
#include "agent/tracer/names.h"

#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/syscalls/syscalls.h"
#include "agent/tracer/owners.h"
#include "agent/tracer/tracer.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/vec.h"
#include "elf/elf.h"
#include "proc/proc.h"
#include "symbol/symbol.h"

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define MAX_NAMES 1000000

/* A file that processes map, with its symbols. */
struct named_file {
	u64 inode;
	u32 dev_major, dev_minor;
	struct elf_file *elf; /* owned; NULL: it cannot be read */
	struct symbols *symbols;
};

struct tracer_names {
	const struct btf *btf;		/* borrowed */
	const struct tracer_walk *walk; /* borrowed, or NULL */
	struct kallsyms *kernel;	/* owned; opened when first needed */
	bool has_kernel;
	vec(struct named_file) files; /* owned */
	struct strtab texts;
	struct map user, cgroups;     /* hash or id → id in `texts` */
	struct tracer_owners *owners; /* owned; created when first needed, NULL until then */
};

int tracer_names_create(const struct btf *btf, struct tracer_names **ret)
{
	struct tracer_names *n = calloc(1, sizeof(*n));

	if (!n || strtab_init(&n->texts) < 0) {
		free(n);
		return -ENOMEM;
	}
	n->btf = btf;
	*ret = n;
	return 0;
}

void tracer_names_destroy(struct tracer_names *n)
{
	if (!n)
		return;
	vec_foreach (&n->files, f) {
		symbols_destroy(f->symbols);
		elf_file_destroy(f->elf);
	}
	vec_deinit(&n->files);
	kallsyms_destroy(n->kernel);
	tracer_owners_destroy(n->owners);
	strtab_deinit(&n->texts);
	map_deinit(&n->user);
	map_deinit(&n->cgroups);
	free(n);
}

static bool append_known(const struct tracer_names *n, const struct map *m, u64 key,
			 struct str *out)
{
	const u64 *id = map_get(m, key);

	if (!id || !*id)
		return false;
	str_puts(out, strtab_get(&n->texts, (u32)*id));
	return true;
}

/* An empty text: it has no name. */
static void remember(struct tracer_names *n, struct map *m, u64 key, const char *text)
{
	u32 id;

	if (m->n < MAX_NAMES && strtab_add(&n->texts, text, strlen(text), &id) == 0)
		(void)map_put(m, key, id);
}

/* ---- stacks ---- */

void tracer_names_set_walk(struct tracer_names *n, const struct tracer_walk *w)
{
	n->walk = w;
}

const struct profile *tracer_name_stack(void *arg, u64 id, u32 pid, u32 *ret_stack)
{
	const struct tracer_names *n = arg;

	return n->walk ? n->walk->stack(n->walk->arg, id, pid, ret_stack) : NULL;
}

u64 tracer_stack_id(void *arg, u64 id)
{
	const struct tracer_names *n = arg;

	return n->walk ? n->walk->stack_id(n->walk->arg, id) : id;
}

void tracer_want_stack(void *arg, u64 id, u32 pid)
{
	const struct tracer_names *n = arg;

	if (n->walk)
		n->walk->want(n->walk->arg, id, pid);
}

/* ---- the kernel ---- */

bool tracer_name_kernel(void *arg, u64 address, struct str *out)
{
	struct tracer_names *n = arg;
	const char *name, *module;

	if (!n->has_kernel) {
		n->has_kernel = true;
		(void)kallsyms_open("/proc/kallsyms", &n->kernel);
	}
	if (!n->kernel || kallsyms_lookup(n->kernel, address, &name, &module) < 0)
		return false;
	str_puts(out, name);
	return true;
}

/* ---- programs ---- */

struct wanted {
	struct tracer_names *names;
	u32 pid;
	u64 address;
	struct str *text;
};

static struct named_file *file_of(struct tracer_names *n, u32 pid, const struct proc_mapping *m)
{
	const struct symbols_options o = {.root_fd = -1, .path = m->path};
	struct named_file f = {
		.inode = m->inode, .dev_major = m->dev_major, .dev_minor = m->dev_minor};
	struct proc_file file;

	vec_foreach (&n->files, have)
		if (have->inode == m->inode && have->dev_major == m->dev_major &&
		    have->dev_minor == m->dev_minor)
			return have;
	if (proc_open_mapped_file(pid, m, &file) == 0 && elf_file_open(file.fd, NULL, &f.elf) == 0)
		(void)symbols_open(f.elf, &o, &f.symbols);
	if (vec_push(&n->files, f) < 0) {
		symbols_destroy(f.symbols);
		elf_file_destroy(f.elf);
		return NULL;
	}
	return &n->files.data[n->files.n - 1];
}

static int look_up(void *arg, const struct proc_mapping *m)
{
	struct wanted *w = arg;
	struct named_file *f;
	struct symbol_chain chain;
	u64 svma;

	if (w->address < m->start || w->address >= m->end)
		return 0;
	f = m->inode ? file_of(w->names, w->pid, m) : NULL;
	if (!f || !f->symbols ||
	    !elf_file_svma_of_foff(f->elf, w->address - m->start + m->offset, &svma) ||
	    symbols_lookup(f->symbols, svma, &chain) < 0)
		return 1;
	str_puts(w->text, chain.frames[chain.n - 1].name);
	return 1;
}

bool tracer_name_user(void *arg, u64 address, u32 pid, struct str *out)
{
	struct tracer_names *n = arg;
	_cleanup_str_ struct str text = {};
	struct wanted w = {n, pid, address, &text};
	u64 key = hash_u64(address ^ hash_u64(pid)) >> 2;

	if (!map_get(&n->user, key)) {
		(void)proc_maps_read(pid, 0, look_up, &w);
		remember(n, &n->user, key, str_get(&text));
	}
	return append_known(n, &n->user, key, out);
}

/* ---- cgroups ---- */

/* The type of a handle of kernfs, which has an id of 8 bytes. */
#define HANDLE_KERNFS 0xfe

/* The id of a cgroup of v2 is its file handle; a link in /proc tells the path. */
static bool append_cgroup(const char *mount, u64 id, struct str *out)
{
	_cleanup_close_ int root = open(mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	_cleanup_free_ struct file_handle *h = calloc(1, sizeof(*h) + sizeof(id));
	char link[64], path[PATH_MAX];
	struct statfs fs;
	ssize_t n;

	if (root < 0 || !h || fstatfs(root, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
		return false;
	h->handle_bytes = sizeof(id);
	h->handle_type = HANDLE_KERNFS;
	memcpy(h->f_handle, &id, sizeof(id));
	fd = open_by_handle_at(root, h, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[MAX(n, 0)] = 0;
	if (!str_starts(path, mount))
		return false;
	str_printf(out, "unified:%s", path[strlen(mount)] ? path + strlen(mount) : "/");
	return true;
}

bool tracer_name_cgroup(void *arg, u64 id, struct str *out)
{
	struct tracer_names *n = arg;
	_cleanup_str_ struct str text = {};

	/* A cgroup that is gone has no path, and never gets one: ids are not reused. */
	if (!map_get(&n->cgroups, id)) {
		if (!append_cgroup(CGROUP_MOUNT, id, &text))
			(void)append_cgroup(CGROUP_MOUNT "/unified", id, &text);
		remember(n, &n->cgroups, id, str_get(&text));
	}
	return append_known(n, &n->cgroups, id, out);
}

/* ---- what a process belongs to ---- */

static bool have_owners(struct tracer_names *n)
{
	return n->owners || tracer_owners_create(&n->owners) == 0;
}

bool tracer_name_owner(void *arg, enum trace_owner what, u32 pid, const char *comm, struct str *out)
{
	struct tracer_names *n = arg;

	return have_owners(n) && tracer_owners_name(n->owners, what, pid, comm, out);
}

u32 tracer_owner_id(void *arg, enum trace_owner what, u32 pid, const char *comm)
{
	struct tracer_names *n = arg;

	return have_owners(n) ? tracer_owners_id(n->owners, what, pid, comm) : pid;
}

/* ---- enums ---- */

bool tracer_name_enumerator(void *arg, u32 type, u64 value, struct str *out)
{
	const struct tracer_names *n = arg;
	const struct btf_type *t = n->btf ? btf__type_by_id(n->btf, type) : NULL;

	for (u32 depth = 0; t && depth < 32 && (btf_is_typedef(t) || btf_is_mod(t)); depth++)
		t = btf__type_by_id(n->btf, t->type);
	if (!t)
		return false;
	for (u32 i = 0; btf_is_enum(t) && i < btf_vlen(t); i++)
		if ((u32)btf_enum(t)[i].val == (u32)value)
			return str_puts(out, btf__str_by_offset(n->btf, btf_enum(t)[i].name_off)) ==
			       0;
	for (u32 i = 0; btf_is_enum64(t) && i < btf_vlen(t); i++)
		if (btf_enum64_value(&btf_enum64(t)[i]) == value)
			return str_puts(out,
					btf__str_by_offset(n->btf, btf_enum64(t)[i].name_off)) == 0;
	return false;
}

bool tracer_name_system_call(void *arg, u64 number, struct str *out)
{
	const char *name = number < UINT32_MAX ? syscalls_name((u32)number) : NULL;

	(void)arg;
	return name && str_puts(out, name) == 0;
}
