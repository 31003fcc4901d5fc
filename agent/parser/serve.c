/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser: reads the files that it is given and builds rows of them. It has no threads, opens
 * nothing, and ends when the agent closes the socket.
 */
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/parser/internal.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "base/message.h"
#include "symbol/debugfile.h"
#include "unwind/unwind.h"

struct file {
	struct elf_file *elf;	/* owned, like the next two */
	struct elf_file *debug; /* NULL: there is none, or it has no unwind information */
	struct unwind_source *source;
	int error; /* why there is no source */
};

struct server {
	int socket;
	int debug_fd;		    /* owned; of the next file, or -1 */
	struct map files;	    /* id → struct file *, owned */
	struct parser_rows *shared; /* NULL: not yet given */
};

static void file_free(struct file *f)
{
	if (!f)
		return;
	unwind_source_destroy(f->source);
	elf_file_destroy(f->debug);
	elf_file_destroy(f->elf);
	free(f);
}

static int add_debug_file(struct file *f, int fd, u64 max_section)
{
	u64 n = unwind_source_info(f->source)->n_fdes;
	int r = debugfile_open_of(f->elf, fd, &f->debug);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	f->debug->max_memory = max_section;
	r = unwind_source_add_debug_file(f->source, f->debug);
	if (r == 0 && unwind_source_info(f->source)->n_fdes == n) {
		elf_file_destroy(f->debug);
		f->debug = NULL;
	}
	return r;
}

static int open_source(struct file *f, int fd, int debug_fd, u64 max_section,
		       const struct unwind_rule *rules, u32 n_rules)
{
	_cleanup_close_ int debug = debug_fd;
	int r = elf_file_open(fd, NULL, &f->elf);

	if (r < 0)
		return r;
	f->elf->max_memory = max_section;
	r = unwind_source_create(f->elf, &f->source);
	if (r == 0 && debug >= 0)
		r = add_debug_file(f, take_fd(&debug), max_section);
	if (r == 0 && n_rules)
		r = unwind_source_continue(f->source, rules, n_rules);
	return r;
}

static int take_file(struct server *s, const struct str *data, int *fd)
{
	_cleanup_free_ struct unwind_rule *rules = NULL;
	struct parser_opening o;
	size_t n = data->n - sizeof(o);
	struct file *f;
	int r;

	if (data->n < sizeof(o) || *fd < 0)
		return -EPROTO;
	memcpy(&o, data->data, sizeof(o));
	rules = malloc(n + 1);
	f = calloc(1, sizeof(*f));
	if (!rules || !f || map_put(&s->files, o.id, (u64)f) < 0) {
		free(f);
		return -ENOMEM;
	}
	memcpy(rules, data->data + sizeof(o), n);
	r = open_source(f, take_fd(fd), take_fd(&s->debug_fd), o.max_section, rules,
			(u32)(n / sizeof(*rules)));
	f->error = r;
	return 0;
}

static int build(struct server *s, const struct parser_question *q, struct parser_answer *ret)
{
	const u64 *slot = map_get(&s->files, q->id);
	struct file *f = slot ? (struct file *)*slot : NULL;
	const struct unwind_rule *rules;
	u32 n;
	int r;

	if (!f || !s->shared)
		return -ENOENT;
	if (f->error)
		return f->error;
	r = unwind_source_rows(f->source, q->page, s->shared->rows, &ret->n_rows);
	rules = unwind_source_rules(f->source, &n);
	if (r < 0 || n < q->n_rules)
		return r < 0 ? r : -EINVAL;
	ret->n_rules = n - q->n_rules;
	memcpy(s->shared->rules, rules + q->n_rules, ret->n_rules * sizeof(*rules));
	return 0;
}

static int answer(struct server *s, const struct str *data)
{
	struct parser_question q;
	struct parser_answer a = {};

	if (data->n != sizeof(q))
		return -EPROTO;
	memcpy(&q, data->data, sizeof(q));
	a.error = build(s, &q, &a);
	return message_send(s->socket, PARSER_ANSWER, &a, sizeof(a), -1);
}

static void close_files(struct server *s, const struct str *data)
{
	for (size_t at = 0; at + sizeof(u64) <= data->n; at += sizeof(u64)) {
		u64 id, f;

		memcpy(&id, data->data + at, sizeof(id));
		if (map_del(&s->files, id, &f))
			file_free((struct file *)f);
	}
	(void)malloc_trim(0);
}

static int take_memory(struct server *s, int fd)
{
	void *p = mmap(NULL, sizeof(*s->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED || s->shared)
		return -errno;
	s->shared = p;
	return 0;
}

static int serve_one(struct server *s)
{
	_cleanup_str_ struct str data = {};
	_cleanup_close_ int pass = -1;
	u32 kind;
	int r = message_receive(s->socket, PARSER_MAX_MESSAGE, &kind, &data, &pass);

	if (r < 0)
		return r;
	switch (kind) {
	case PARSER_MEMORY:
		return take_memory(s, pass);
	case PARSER_DEBUG:
		cleanup_close(&s->debug_fd);
		s->debug_fd = take_fd(&pass);
		return 0;
	case PARSER_FILE:
		return take_file(s, &data, &pass);
	case PARSER_PAGE:
		return answer(s, &data);
	case PARSER_DUMP:
		return parser_serve_dump(s->socket, &data, take_fd(&pass));
	case PARSER_CLOSE:
		close_files(s, &data);
		return 0;
	default:
		return -EPROTO;
	}
}

void parser_serve(int socket)
{
	struct server s = {.socket = socket, .debug_fd = -1};

	while (serve_one(&s) == 0)
		;
	map_foreach (&s.files, slot)
		file_free((struct file *)slot->value);
	map_deinit(&s.files);
	cleanup_close(&s.debug_fd);
	if (s.shared)
		(void)munmap(s.shared, sizeof(*s.shared));
}
