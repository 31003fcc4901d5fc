/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame that is an offset in a file becomes the functions at that place, of which there may be
 * several (inlined). Frames are added, and the stacks that had the old frame get a new list: the
 * old frames and lists stay in the profile and are of no stack.
 */
#include "cli/naming.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "symbol/symbol.h"

#define KERNEL "[kernel.kallsyms]"
#define KALLSYMS "/proc/kallsyms"

/* What a frame becomes: a part of `frames`; n = 0: it stays. */
struct replacement {
	u32 first, n;
};

struct naming {
	struct profile *p;
	vec(struct replacement) by_frame;
	vec(u32) frames; /* leaf first */
	struct kallsyms *kallsyms;
	u64 slide;	       /* of the kernel since the recording */
	u32 by_path, unusable; /* files without a build id; with another one, or not there */
	u32 example;	       /* string id: the path of one of the latter */
};

static void naming_deinit(struct naming *n)
{
	vec_deinit(&n->by_frame);
	vec_deinit(&n->frames);
	kallsyms_destroy(n->kallsyms);
}

/* Has no function, and is in this mapping. */
static bool is_nameless(const struct profile *p, u32 frame, u32 mapping)
{
	const struct profile_frame *f = &p->frames.data[frame];

	return f->function == PROFILE_NONE && f->mapping == mapping;
}

static int add_function(struct profile *p, const char *name, const char *system_name,
			const char *file, u32 line, u32 *ret)
{
	struct profile_function fn = {.start_line = line};
	int r = profile_add_string(p, name, strlen(name), &fn.name);

	if (r == 0)
		r = profile_add_string(p, system_name, strlen(system_name), &fn.system_name);
	if (r == 0 && file)
		r = profile_add_string(p, file, strlen(file), &fn.file);
	return r < 0 ? r : profile_add_function(p, &fn, ret);
}

static int replace(struct naming *n, u32 frame, struct profile_frame to)
{
	struct replacement *r = &n->by_frame.data[frame];
	u32 id;
	int err = profile_add_frame(n->p, &to, &id);

	if (err < 0)
		return err;
	r->first = r->n ? r->first : (u32)n->frames.n;
	r->n++;
	return vec_push(&n->frames, id);
}

static int replace_by_name(struct naming *n, u32 frame, const char *name)
{
	struct profile_frame to = n->p->frames.data[frame];
	int r = add_function(n->p, name, name, NULL, 0, &to.function);

	return r < 0 ? r : replace(n, frame, to);
}

/* ---- files ---- */

/* A file of the profile may have any name: nothing but a regular file is read. */
static int open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return -EINVAL;
}

static int name_in_file(struct naming *n, u32 frame, struct elf_file *elf, struct symbols *symbols)
{
	struct profile_frame base = n->p->frames.data[frame];
	struct symbol_chain chain = {};
	u64 svma;
	int r = 0;

	if (base.flags & PROFILE_FRAME_OFFSET) {
		if (!elf_file_svma_of_foff(elf, base.address, &svma))
			return 0;
		base.address = svma;
		base.flags &= (u8)~PROFILE_FRAME_OFFSET;
	}
	if (!symbols || symbols_lookup(symbols, base.address, &chain) < 0)
		return replace(n, frame, base);
	for (u32 i = 0; i < chain.n && r == 0; i++) {
		const struct symbol_frame *s = &chain.frames[i];
		struct profile_frame to = base;

		to.line = s->line;
		to.column = s->column;
		to.flags |= s->inlined ? PROFILE_FRAME_INLINED : 0;
		r = add_function(n->p, s->name, s->system_name, s->file, s->start_line,
				 &to.function);
		if (r == 0)
			r = replace(n, frame, to);
	}
	return r;
}

static bool has_build_id(const struct elf_file *elf, const char *digits)
{
	char own[2 * ELF_MAX_BUILD_ID + 1];

	text_hex(elf->build_id, elf->build_id_n, own);
	return !*digits || !strcmp(own, digits);
}

static int name_file(struct naming *n, u32 mapping, size_t n_frames)
{
	struct profile_mapping m = n->p->mappings.data[mapping];
	_cleanup_free_ char *path = strdup(profile_string(n->p, m.path));
	bool told = m.build_id != 0;
	struct symbols_options o = {.inlines = true, .lines = true, .root_fd = -1, .path = path};
	_cleanup_elf_file_ struct elf_file *elf = NULL;
	struct symbols *symbols = NULL;
	int fd, r = 0;

	if (!path)
		return -ENOMEM;
	fd = open_regular(path);
	if (fd < 0 || elf_file_open(fd, NULL, &elf) < 0 ||
	    !has_build_id(elf, profile_string(n->p, m.build_id))) {
		n->unusable++;
		n->example = n->p->mappings.data[mapping].path;
		return 0;
	}
	n->by_path += !told;
	(void)symbols_open(elf, &o, &symbols);
	for (u32 i = 0; i < n_frames && r == 0; i++)
		if (is_nameless(n->p, i, mapping))
			r = name_in_file(n, i, elf, symbols);
	symbols_destroy(symbols);
	return r;
}

/* ---- the kernel, and code of JIT compilers ---- */

/* The address of the symbol _text; 0: it is hidden, or not there. */
static u64 kernel_start(void)
{
	FILE *f = fopen(KALLSYMS, "re");
	char line[512];
	u64 start = 0;

	while (f && !start && fgets(line, sizeof(line), f))
		if (strstr(line, " _text\n"))
			start = strtoull(line, NULL, 16);
	if (f)
		(void)fclose(f);
	return start;
}

static bool is_running_kernel(const char *build_id)
{
	char notes[4096], digits[2 * ELF_MAX_BUILD_ID + 1];
	int fd = open("/sys/kernel/notes", O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? 0 : read(fd, notes, sizeof(notes));
	bool same = false;

	if (fd >= 0)
		close(fd);
	/* The note of the type NT_GNU_BUILD_ID: its bytes are behind the name "GNU". */
	for (ssize_t i = 0; i + 36 <= size && !same; i += 4) {
		static const u8 head[] = {4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};

		if (memcmp(notes + i, head, sizeof(head)) != 0)
			continue;
		text_hex((const u8 *)notes + i + 16, 20, digits);
		same = !strcmp(digits, build_id);
	}
	return same;
}

/*
 * Once. Without a build id it has to be at the same address, to which it is loaded by chance;
 * symbols of modules fit only if the kernel was not started again.
 */
static void open_kallsyms(struct naming *n)
{
	u64 start = kernel_start();

	vec_foreach (&n->p->mappings, m) {
		const char *build_id = profile_string(n->p, m->build_id);

		if (strcmp(profile_string(n->p, m->path), KERNEL) != 0)
			continue;
		/* Recordings into a pipe and compressed ones do not have it. */
		if (*build_id ? !is_running_kernel(build_id) : m->start != start)
			continue;
		if (!start || kallsyms_open(KALLSYMS, &n->kallsyms) < 0)
			return;
		n->by_path += !*build_id;
		n->slide = m->start ? start - m->start : 0;
		return;
	}
}

static int name_kernel(struct naming *n, u32 mapping, size_t n_frames)
{
	bool module = strcmp(profile_string(n->p, n->p->mappings.data[mapping].path), KERNEL) != 0;
	const char *name, *of;
	int r = 0;

	if (!n->kallsyms)
		open_kallsyms(n);
	if (!n->kallsyms || (module && n->slide)) {
		n->unusable++;
		n->example = n->p->mappings.data[mapping].path;
		return 0;
	}
	for (u32 i = 0; i < n_frames && r == 0; i++) {
		const struct profile_frame *f = &n->p->frames.data[i];

		if (is_nameless(n->p, i, mapping) &&
		    kallsyms_lookup(n->kallsyms, f->address + n->slide, &name, &of) == 0)
			r = replace_by_name(n, i, name);
	}
	return r;
}

static int name_jit(struct naming *n, u32 mapping, size_t n_frames)
{
	int fd = open_regular(profile_string(n->p, n->p->mappings.data[mapping].path)), r = 0;
	struct perf_map *map;
	const char *name;

	if (fd < 0 || perf_map_open(fd, 256 << 20, &map) < 0)
		return 0;
	(void)perf_map_refresh(map);
	for (u32 i = 0; i < n_frames && r == 0; i++)
		if (is_nameless(n->p, i, mapping) &&
		    perf_map_lookup(map, n->p->frames.data[i].address, &name) == 0)
			r = replace_by_name(n, i, name);
	perf_map_destroy(map);
	return r;
}

/* ---- the profile ---- */

static int name_mapping(struct naming *n, u32 mapping, size_t n_frames)
{
	u32 i = 0;

	while (i < n_frames && !is_nameless(n->p, i, mapping))
		i++;
	if (i == n_frames)
		return 0;
	if (n->p->frames.data[i].kind == FRAME_KERNEL)
		return name_kernel(n, mapping, n_frames);
	if (n->p->frames.data[i].kind == FRAME_JIT)
		return name_jit(n, mapping, n_frames);
	if (profile_string(n->p, n->p->mappings.data[mapping].path)[0] != '/')
		return 0;
	return name_file(n, mapping, n_frames);
}

static int rewrite_stack(struct naming *n, struct profile_stack *s)
{
	size_t first = n->p->stack_frames.n;
	bool any = false;
	int r = 0;

	for (u32 i = 0; i < s->n && !any; i++)
		any = n->by_frame.data[n->p->stack_frames.data[s->first + i]].n > 0;
	for (u32 i = 0; any && i < s->n && r == 0; i++) {
		u32 id = n->p->stack_frames.data[s->first + i];
		const struct replacement *to = &n->by_frame.data[id];

		if (!to->n)
			r = vec_push(&n->p->stack_frames, id);
		for (u32 k = 0; k < to->n && r == 0; k++) {
			id = n->frames.data[to->first + k];
			r = vec_push(&n->p->stack_frames, id);
		}
	}
	if (r < 0 || !any)
		return r;
	if (n->p->stack_frames.n > PROFILE_NONE)
		return -E2BIG;
	s->n = (u32)(n->p->stack_frames.n - first);
	s->first = (u32)first;
	return 0;
}

/* Offsets in files are what perf.data and gperftools have; in other formats names are final. */
static bool is_wanted(const struct profile *p)
{
	vec_foreach (&p->frames, f)
		if (f->function == PROFILE_NONE && (f->flags & PROFILE_FRAME_OFFSET))
			return true;
	vec_foreach (&p->mappings, m)
		if (m->start && !strcmp(profile_string(p, m->path), KERNEL))
			return true;
	return false;
}

/* Frames that have names now. */
static void count_again(struct profile *p)
{
	struct profile_quality q = p->quality;

	profile_derive_quality(p);
	q.unknown = p->quality.unknown;
	q.frames = p->quality.frames;
	p->quality = q;
}

static void tell(const struct naming *n, const char *command)
{
	if (n->unusable)
		fprintf(stderr,
			"culprit: %s: no names for frames of %u files, which are not on this "
			"machine or are others now, such as %s\n",
			command, n->unusable, profile_string(n->p, n->example));
	if (n->by_path)
		fprintf(stderr,
			"culprit: %s: the names are those of %u files at the recorded paths: the "
			"profile has no build ids that tell whether they are the same\n",
			command, n->by_path);
}

int naming_apply(struct profile *p, const char *command)
{
	__attribute__((cleanup(naming_deinit))) struct naming n = {.p = p};
	size_t n_frames = p->frames.n, n_mappings = p->mappings.n;
	struct replacement none = {};
	int r = 0;

	if (!is_wanted(p))
		return 0;
	for (size_t i = 0; i < n_frames && r == 0; i++)
		r = vec_push(&n.by_frame, none);
	for (u32 i = 0; i < n_mappings && r == 0; i++)
		r = name_mapping(&n, i, n_frames);
	for (size_t i = 0; i < p->stacks.n && r == 0; i++)
		r = rewrite_stack(&n, &p->stacks.data[i]);
	if (r < 0)
		return r;
	count_again(p);
	tell(&n, command);
	return 0;
}
