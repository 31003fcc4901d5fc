/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/procman/binary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "abi/unwind.h"
#include "agent/procman/internal.h"
#include "base/log.h"

static struct binary *binary_of(const struct procman_binary *b)
{
	return container_of(b, struct binary, pub);
}

/* ---- references, and the list of binaries without one ---- */

static void idle_remove(struct binaries *t, struct binary *b)
{
	if (b->idle_prev)
		b->idle_prev->idle_next = b->idle_next;
	else
		t->idle_first = b->idle_next;
	if (b->idle_next)
		b->idle_next->idle_prev = b->idle_prev;
	else
		t->idle_last = b->idle_prev;
	b->idle_prev = b->idle_next = NULL;
}

struct procman_binary *procman_binary_get(struct procman_binary *pub)
{
	struct binary *b = binary_of(pub);

	if (b->refs++ == 0 && b->table)
		idle_remove(b->table, b);
	return pub;
}

void procman_binary_put(struct procman_binary *pub)
{
	struct binary *b = binary_of(pub);
	struct binaries *t = b->table;

	if (--b->refs || !t)
		return;
	b->idle_ns = now_ns();
	b->idle_prev = t->idle_last;
	if (t->idle_last)
		t->idle_last->idle_next = b;
	else
		t->idle_first = b;
	t->idle_last = b;
}

/* ---- the table ---- */

static u64 inode_hash(u32 dev_major, u32 dev_minor, u64 inode)
{
	u64 h = hash_u64(hash_u64((u64)dev_major << 32 | dev_minor) ^ inode);

	return h >= MAP_GONE_KEY ? 0 : h;
}

/* Hides a binary from later lookups; its references stay valid. */
static void unlink_inode(struct binaries *t, struct binary *b)
{
	u64 *first = map_get(&t->by_inode, b->hash);
	struct binary *at = first ? (struct binary *)*first : NULL;

	if (at == b && !b->chain)
		map_del(&t->by_inode, b->hash, NULL);
	else if (at == b)
		*first = (u64)(uintptr_t)b->chain;
	for (; at; at = at->chain) {
		if (at->chain == b) {
			at->chain = b->chain;
			break;
		}
	}
	b->chain = NULL;
}

static void binary_free(struct binary *b)
{
	elf_file_destroy(b->pub.elf);
	if (b->fd >= 0)
		close(b->fd);
	free((char *)b->pub.path);
	free(b);
}
DEFINE_CLEANUP(binary, struct binary *, binary_free)

static void binary_remove(struct binaries *t, struct binary *b)
{
	unlink_inode(t, b);
	if (b->all_prev)
		b->all_prev->all_next = b->all_next;
	else
		t->all = b->all_next;
	if (b->all_next)
		b->all_next->all_prev = b->all_prev;
	if (b->pub.file_id)
		map_del(&t->by_id, b->pub.file_id, NULL);
	t->stats->binaries--;
	binary_free(b);
}

static struct binary *binary_alloc(enum procman_binary_kind kind, const char *path)
{
	_cleanup_(binary) struct binary *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->fd = -1;
	b->refs = 1;
	b->pub.kind = kind;
	b->pub.first_seen_ns = now_ns();
	b->pub.path = strdup(path);
	return b->pub.path ? take_ptr(b) : NULL;
}

/*
 * Returns the next unused id. Ids wrap around, so that an id is reused as late as possible, after
 * millions of others. 0: all ids are in use.
 */
static u32 take_id(struct binaries *t)
{
	if (t->by_id.n + 1 >= t->max_files) {
		t->stats->file_ids_out++;
		return 0;
	}
	do
		t->last_id = t->last_id + 1 < t->max_files ? t->last_id + 1 : 1;
	while (map_get(&t->by_id, t->last_id));
	return t->last_id;
}

/* Assigns an id and enters the binary in the tables. Takes ownership of it, also on failure. */
static int binary_add(struct binaries *t, struct binary *taken, u64 hash)
{
	_cleanup_(binary) struct binary *b = taken;
	/* Generated code is identified by its process: tables and names need no id. */
	u32 id = procman_binary_is_jit(&b->pub) ? 0 : take_id(t);
	u64 *first;

	if (id && map_put(&t->by_id, id, (u64)(uintptr_t)b) < 0)
		return -ENOMEM;
	first = map_get(&t->by_inode, hash);
	b->hash = hash;
	b->chain = first ? (struct binary *)*first : NULL;
	if (map_put(&t->by_inode, hash, (u64)(uintptr_t)b) < 0) {
		map_del(&t->by_id, id, NULL);
		return -ENOMEM;
	}
	b->all_next = t->all;
	if (t->all)
		t->all->all_prev = b;
	t->all = b;
	b->pub.file_id = id;
	b->table = t;
	t->stats->binaries++;
	t->stats->file_ids += id != 0;
	(void)take_ptr(b);
	return 0;
}

/* ---- kinds ---- */

bool binary_is_anon(const struct proc_mapping *m)
{
	return m->inode == 0 &&
	       (!*m->path || !strcmp(m->path, "//anon") || str_starts(m->path, "[heap]") ||
		str_starts(m->path, "[stack") || str_starts(m->path, "[anon:"));
}

static enum procman_binary_kind kind_of(const struct proc_mapping *m)
{
	if (m->inode == 0 || m->path[0] != '/')
		return PROCMAN_OTHER;
	if (m->deleted && m->dev_major == 0) {
		if (str_starts(m->path, "/memfd:"))
			return PROCMAN_MEMFD;
		if (str_starts(m->path, "/SYSV") || !strcmp(m->path, "/dev/zero") ||
		    !strcmp(m->path, "/anon_hugepage"))
			return PROCMAN_SHARED;
	}
	return PROCMAN_FILE;
}

static int own_vdso(void *arg, const struct proc_mapping *m)
{
	if (strcmp(m->path, "[vdso]"))
		return 0;
	*(u64 *)arg = m->end - m->start;
	return 1;
}

/* All 64-bit processes have the vDSO that culprit has: it is one object in the kernel. */
static void add_vdso(struct binaries *t)
{
	const void *image = (const void *)getauxval(AT_SYSINFO_EHDR);
	struct binary *b;
	u64 n = 0;

	if (!image || proc_maps_read((u32)getpid(), 0, own_vdso, &n) != 1)
		return;
	b = binary_alloc(PROCMAN_VDSO, "[vdso]");
	if (!b)
		return;
	b->pub.error = elf_file_open_memory(image, n, NULL, &b->pub.elf);
	if (binary_add(t, b, hash_bytes("[vdso]", 6) >> 1) < 0)
		return;
	t->vdso = b;
	t->vdso_bytes = n;
}

/* ---- files ---- */

/* Whether the binary's file is unchanged since it was opened. */
static bool is_unchanged(const struct binary *b)
{
	int fd = b->pub.elf ? b->pub.elf->fd : b->fd;
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE | STATX_MTIME, &st) ==
		       0 &&
	       st.stx_size == b->size &&
	       st.stx_mtime.tv_sec * 1000000000LL + st.stx_mtime.tv_nsec == b->mtime_ns;
}

enum match { MATCH_NONE, MATCH_YES, MATCH_RETRY };

static enum match compare_mapping(const struct binary *b, const struct proc_mapping *m,
				  u64 generation)
{
	if (b->pub.kind == PROCMAN_VDSO || b->pub.kind == PROCMAN_ANON)
		return MATCH_NONE;
	if (b->pub.inode != m->inode || b->pub.dev_major != m->dev_major ||
	    b->pub.dev_minor != m->dev_minor)
		return MATCH_NONE;
	if (!m->inode)
		return strcmp(b->pub.path, m->path) == 0 ? MATCH_YES : MATCH_NONE;
	if (b->pub.elf || b->fd >= 0)
		return is_unchanged(b) ? MATCH_YES : MATCH_NONE;
	if (generation && b->generation && generation != b->generation)
		return MATCH_NONE;
	/* Not a regular file, or on FUSE: neither changes. */
	return b->pub.error == -ENXIO || b->pub.error == -EIO || b->pub.kind == PROCMAN_OTHER
		       ? MATCH_YES
		       : MATCH_RETRY;
}

/* Opens the file and its ELF headers. A failure is recorded in the binary. */
static void binary_open(struct binaries *t, struct binary *b, u32 pid, const struct proc_mapping *m)
{
	struct diag diag = {};
	struct proc_file file;
	int r = proc_open_mapped_file(pid, m, &file);

	if (r < 0) {
		b->pub.error = r;
		t->stats->open_failed++;
		log_debug("pid %u: %s not opened: %s", pid, m->path, strerror(-r));
		return;
	}
	t->stats->opened++;
	b->size = file.size;
	b->mtime_ns = file.mtime_ns;
	/* Keep the file open even if it is not ELF, because it holds the inode. */
	b->fd = fcntl(file.fd, F_DUPFD_CLOEXEC, 0);
	r = elf_file_open(file.fd, &diag, &b->pub.elf);
	if (r < 0) {
		b->pub.error = r;
		log_debug("pid %u: %s: %s", pid, m->path, diag.text);
	} else if (b->fd >= 0) {
		close(b->fd);
		b->fd = -1;
	}
}

static struct binary *binary_of_mapping(struct binaries *t, u32 pid, const struct proc_mapping *m,
					u64 generation)
{
	enum procman_binary_kind kind = kind_of(m);
	struct binary *b = binary_alloc(kind, m->path);

	if (!b)
		return NULL;
	b->pub.deleted = m->deleted;
	b->pub.dev_major = m->dev_major;
	b->pub.dev_minor = m->dev_minor;
	b->pub.inode = m->inode;
	b->generation = generation;
	if (kind == PROCMAN_OTHER)
		b->pub.error = -ENXIO;
	else
		binary_open(t, b, pid, m);
	return b;
}

/*
 * Opens a binary again that could not be opened, because another process may have access. Success
 * creates a new binary: the biases in the mappings of the old one were computed without ELF
 * headers.
 */
static int reopen(struct binaries *t, struct binary *old, u32 pid, const struct proc_mapping *m,
		  u64 generation, struct procman_binary **ret)
{
	struct binary *b = binary_of_mapping(t, pid, m, generation);

	if (!b)
		return -ENOMEM;
	if (!b->pub.elf && b->fd < 0) {
		binary_free(b);
		*ret = procman_binary_get(&old->pub);
		return 0;
	}
	unlink_inode(t, old);
	if (binary_add(t, b, inode_hash(m->dev_major, m->dev_minor, m->inode)) < 0)
		return -ENOMEM;
	*ret = &b->pub;
	return 0;
}

int binaries_find(struct binaries *t, u32 pid, const struct proc_mapping *m, u64 generation,
		  struct procman_binary **ret)
{
	u64 hash = inode_hash(m->dev_major, m->dev_minor, m->inode), *first;
	struct binary *b;

	/* Walks find out from the kernel where the thread is that runs its code for uprobes. */
	if (!strcmp(m->path, "[vsyscall]") || !strcmp(m->path, "[uprobes]"))
		return -ENOENT;
	/* 32-bit processes have another vDSO, below 4 GiB. */
	if (!m->inode && !strcmp(m->path, "[vdso]") && t->vdso && m->start > UINT32_MAX &&
	    m->end - m->start == t->vdso_bytes) {
		*ret = procman_binary_get(&t->vdso->pub);
		return 0;
	}
	if (!m->inode)
		hash = hash_bytes(m->path, strlen(m->path)) >> 1;
	first = map_get(&t->by_inode, hash);
	for (b = first ? (struct binary *)*first : NULL; b; b = b->chain) {
		switch (compare_mapping(b, m, generation)) {
		case MATCH_YES:
			*ret = procman_binary_get(&b->pub);
			return 0;
		case MATCH_RETRY:
			return reopen(t, b, pid, m, generation, ret);
		case MATCH_NONE:
			break;
		}
	}
	b = binary_of_mapping(t, pid, m, generation);
	if (!b || binary_add(t, b, hash) < 0)
		return -ENOMEM;
	*ret = &b->pub;
	return 0;
}

int binaries_add_anon(struct binaries *t, u32 pid, struct procman_binary **ret)
{
	struct binary *b = binary_alloc(PROCMAN_ANON, "//anon");

	if (!b)
		return -ENOMEM;
	b->pub.pid = pid;
	/* In no chain, because binaries_find() never looks for these. */
	if (binary_add(t, b, hash_u64((++t->n_anon << 32) ^ pid) >> 1) < 0)
		return -ENOMEM;
	*ret = &b->pub;
	return 0;
}

u64 binary_bias(const struct procman_binary *b, u64 start, u64 foff)
{
	const struct elf_file *elf = b->elf;
	u64 page = (u64)sysconf(_SC_PAGESIZE);
	const struct elf_segment *best = NULL;

	/* A mapping starts at a page boundary, which may precede the segment's first byte. */
	for (u32 i = 0; elf && i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];
		u64 from = s->foff & ~(page - 1);

		if (foff < from || foff - from >= s->filesz + (s->foff - from))
			continue;
		if (!best || (!(best->flags & PF_X) && (s->flags & PF_X)))
			best = s;
	}
	return best ? start - (best->svma + (foff - best->foff)) : start - foff;
}

void binaries_init(struct binaries *t, u32 max_files, struct procman_stats *stats)
{
	*t = (struct binaries){.stats = stats, .max_files = max_files};
	add_vdso(t);
}

void binaries_deinit(struct binaries *t, void (*gone)(void *arg, struct procman_binary *b),
		     void *arg)
{
	struct binary *b;

	while ((b = t->all)) {
		t->all = b->all_next;
		if (gone)
			gone(arg, &b->pub);
		binary_free(b);
	}
	map_deinit(&t->by_inode);
	map_deinit(&t->by_id);
	*t = (struct binaries){};
}

void binaries_expire(struct binaries *t, u64 before_ns,
		     void (*gone)(void *arg, struct procman_binary *b), void *arg)
{
	struct binary *b;

	while ((b = t->idle_first) && b->idle_ns <= before_ns) {
		idle_remove(t, b);
		b->table = NULL; /* a get and put in the callback must not revive it */
		if (gone)
			gone(arg, &b->pub);
		binary_remove(t, b);
	}
}

u64 binaries_due_ns(const struct binaries *t, u64 linger_ns)
{
	return t->idle_first ? t->idle_first->idle_ns + linger_ns : ~0ULL;
}
