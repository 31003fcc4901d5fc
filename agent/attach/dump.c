/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in the /tmp of a JVM: settings that it reads, and dumps that it writes. The folder is open
 * to all its users, so the names are random: nobody can put a link in a file's place before.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/attach/internal.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/map.h"
#include "base/text.h"
#include "base/vocab.h"
#include "proc/proc.h"

#define RANDOM_BYTES 16
#define MAX_THREADS PARSER_MAX_TIDS

int jvm_file_name(const char *ending, char *ret)
{
	char hex[2 * RANDOM_BYTES + 1];
	u8 bytes[RANDOM_BYTES];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	text_hex(bytes, sizeof(bytes), hex);
	snprintf(ret, JVM_FILE_NAME, "culprit-%s%s", hex, ending);
	return 0;
}

int jvm_write_file(const struct jvm *j, const char *name, const char *text)
{
	_cleanup_close_ int fd =
		openat(j->tmp, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	int r;

	if (fd < 0)
		return -errno;
	/* The umask is the agent's. */
	r = fchmod(fd, 0644) < 0 ? -errno : io_write_all(fd, text, strlen(text));
	if (r < 0)
		jvm_remove_file(j, name);
	return r;
}

void jvm_remove_file(const struct jvm *j, const char *name)
{
	(void)unlinkat(j->tmp, name, 0);
}

static int check_file(const struct jvm *j, int at, u64 *ret_bytes)
{
	struct stat st;

	if (fstat(at, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != j->uid || st.st_nlink > 1)
		return -EPERM;
	if ((u64)st.st_size > DUMP_MAX_BYTES)
		return -E2BIG;
	*ret_bytes = (u64)st.st_size;
	return 0;
}

int jvm_take_file(const struct jvm *j, const char *name, int *ret_fd, u64 *ret_bytes)
{
	/* Without opening it, because it may be a FIFO or a device. */
	_cleanup_close_ int at = openat(j->tmp, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char path[32];
	int fd, r;

	if (at < 0)
		return -errno;
	r = check_file(j, at, ret_bytes);
	jvm_remove_file(j, name);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* ---- whose samples they are ---- */

void jvm_threads(const struct jvm *j, struct map *ret)
{
	struct proc_status status;
	struct dirent *entry;
	char path[32];
	DIR *dir;
	u64 tid;

	snprintf(path, sizeof(path), "/proc/%u/task", j->pid);
	dir = opendir(path);
	while (dir && ret->n < MAX_THREADS && (entry = readdir(dir)))
		if (str_to_u64(entry->d_name, 10, &tid) == 0 &&
		    proc_status_read((u32)tid, &status) == 0)
			(void)map_put(ret, status.ns_pid, tid);
	if (dir)
		closedir(dir);
}

static void identify(struct profile *p, const struct jvm *j, u32 comm, u32 resource,
		     const struct map *threads)
{
	for (size_t i = 0; i < p->threads.n; i++) {
		struct profile_thread *t = &p->threads.data[i];
		const u64 *tid = map_get(threads, t->tid);

		/* A thread that has ended, where its id is not the same here, has none. */
		if (j->ns_pid != j->pid)
			t->tid = tid ? (u32)*tid : 0;
		t->pid = j->pid;
		t->comm = comm;
		t->resource = resource;
	}
}

/* The parser's file says kinds of frames by made-up mappings. */
static void drop_mappings(struct profile *p)
{
	for (size_t i = 0; i < p->frames.n; i++)
		if (vocab_frame_kind(p->frames.data[i].kind)->class != FRAME_CLASS_NATIVE)
			p->frames.data[i].mapping = PROFILE_NONE;
}

static void count_samples(struct profile *p)
{
	static const enum sample_type counts[] = {SAMPLE_TYPE_ALLOC_SAMPLE_OBJECTS,
						  SAMPLE_TYPE_TLAB_OBJECTS,
						  SAMPLE_TYPE_OUTSIDE_TLAB_OBJECTS};

	p->quality = (struct profile_quality){};
	for (size_t k = 0; k < ARRAY_SIZE(counts); k++) {
		u32 t = profile_find_type(p, counts[k]);

		for (size_t i = 0; i < p->n_samples && t != PROFILE_NONE; i++) {
			const struct profile_sample *s = profile_sample(p, i);

			if (s->value[t] > 0)
				profile_count_quality(p, s->stack, (u64)s->value[t]);
		}
	}
}

int dump_identify(struct profile *p, const struct jvm *j, u64 image, const char *comm,
		  struct identities *identities)
{
	u32 resource = 0, name;
	struct map threads = {};
	int r = profile_add_string(p, comm, strlen(comm), &name);

	if (r == 0 && identities)
		r = identities_resource(identities, image, comm, p, &resource);
	if (r < 0)
		return r;
	if (j->ns_pid != j->pid)
		jvm_threads(j, &threads);
	identify(p, j, name, resource, &threads);
	map_deinit(&threads);
	drop_mappings(p);
	count_samples(p);
	return 0;
}
