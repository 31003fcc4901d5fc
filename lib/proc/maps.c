/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/maps as a stream:
 *
 *	7f1c2a000000-7f1c2a021000 r-xp 00001000 fd:01 1311 [blanks] /usr/lib/libc.so.6 (deleted)
 *
 * The reader fills a buffer, passes its complete lines to the callback, and moves the incomplete
 * rest to the start of the buffer. The buffer grows only for a line that fills all of it, up to
 * PROC_MAX_LINE.
 */
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "proc/internal.h"

#define BUFFER_BYTES (64u << 10)

struct cursor {
	const char *pos;
	const char *end;
};

static bool take_number(struct cursor *c, unsigned int base, char after, u64 *ret)
{
	const char *p = c->pos;
	u64 v = 0;

	for (; p < c->end; p++) {
		unsigned int digit;

		if (*p >= '0' && *p <= '9')
			digit = (unsigned int)(*p - '0');
		else if (base == 16 && *p >= 'a' && *p <= 'f')
			digit = (unsigned int)(*p - 'a') + 10;
		else
			break;
		if (v > (~0ULL - digit) / base)
			return false;
		v = v * base + digit;
	}
	if (p == c->pos || p == c->end || *p != after)
		return false;
	c->pos = p + 1;
	*ret = v;
	return true;
}

static bool take_prot(struct cursor *c, u32 *ret_prot)
{
	const char *p = c->pos;

	if (c->end - p < 5 || p[4] != ' ')
		return false;
	*ret_prot = (p[0] == 'r' ? PROT_READ : 0u) | (p[1] == 'w' ? PROT_WRITE : 0u) |
		    (p[2] == 'x' ? PROT_EXEC : 0u);
	c->pos += 5;
	return true;
}

/* The kernel writes a newline in a name as \012 and escapes nothing else. */
static char *unescape(char *s, char *end)
{
	char *out = memchr(s, '\\', (size_t)(end - s));

	if (!out)
		return end;
	for (char *in = out; in < end;) {
		if (end - in >= 4 && memcmp(in, "\\012", 4) == 0) {
			*out++ = '\n';
			in += 4;
		} else {
			*out++ = *in++;
		}
	}
	return out;
}

/* Parses start, end and protection, which decide whether the rest of the line is needed. */
static bool take_head(struct cursor *c, struct proc_mapping *m)
{
	return take_number(c, 16, '-', &m->start) && take_number(c, 16, ' ', &m->end) &&
	       m->start < m->end && take_prot(c, &m->prot);
}

static int parse_tail(struct cursor *c, char *line_end, struct proc_mapping *m)
{
	static const char gone[] = " (deleted)";
	const size_t gone_n = sizeof(gone) - 1;
	u64 dev_major, dev_minor;
	char *path, *end;

	/* The inode is followed by at least one blank, even when no name follows. */
	if (!take_number(c, 16, ' ', &m->offset) || !take_number(c, 16, ':', &dev_major) ||
	    !take_number(c, 16, ' ', &dev_minor) || !take_number(c, 10, ' ', &m->inode))
		return -EINVAL;
	if (dev_major > UINT32_MAX || dev_minor > UINT32_MAX)
		return -EINVAL;
	m->dev_major = (u32)dev_major;
	m->dev_minor = (u32)dev_minor;
	while (c->pos < c->end && *c->pos == ' ')
		c->pos++;
	path = line_end - (c->end - c->pos);
	end = line_end;
	if ((size_t)(end - path) > gone_n && memcmp(end - gone_n, gone, gone_n) == 0) {
		m->deleted = true;
		end -= gone_n;
	}
	*unescape(path, end) = '\0';
	m->path = path;
	return 0;
}

int proc_maps_parse_line(char *line, size_t n, struct proc_mapping *ret)
{
	struct cursor c = {.pos = line, .end = line + n};
	struct proc_mapping m = {};
	int r;

	if (!take_head(&c, &m))
		return -EINVAL;
	r = parse_tail(&c, line + n, &m);
	if (r == 0)
		*ret = m;
	return r;
}

struct reader {
	int fd;	      /* borrowed */
	char *buffer; /* owned; one byte more than cap, for the NUL of a last line */
	size_t cap;
	size_t n;
	bool skipping; /* skipping the rest of a line that was too long */
	proc_line_fn *fn;
	void *arg;
};

/* Passes the complete lines of the buffer to the callback and keeps the rest. */
static int reader_lines(struct reader *rd)
{
	char *pos = rd->buffer, *end = rd->buffer + rd->n, *nl;
	int r;

	while ((nl = memchr(pos, '\n', (size_t)(end - pos)))) {
		if (!rd->skipping) {
			r = rd->fn(rd->arg, pos, (size_t)(nl - pos));
			if (r != 0)
				return r;
		}
		rd->skipping = false;
		pos = nl + 1;
	}
	rd->n = (size_t)(end - pos);
	if (pos != rd->buffer)
		memmove(rd->buffer, pos, rd->n);
	return 0;
}

/* The buffer holds one incomplete line: grows the buffer, or cuts the line. */
static int reader_room(struct reader *rd)
{
	char *p;
	int r;

	if (rd->n < rd->cap)
		return 0;
	if (rd->skipping) {
		rd->n = 0;
		return 0;
	}
	if (rd->cap >= PROC_MAX_LINE) {
		r = rd->fn(rd->arg, rd->buffer, rd->n);
		rd->skipping = true;
		rd->n = 0;
		return r;
	}
	p = realloc(rd->buffer, rd->cap * 2 + 1);
	if (!p)
		return -ENOMEM;
	rd->buffer = p;
	rd->cap *= 2;
	return 0;
}

static int reader_run(struct reader *rd)
{
	bool any = false;

	for (;;) {
		ssize_t got = read(rd->fd, rd->buffer + rd->n, rd->cap - rd->n);
		int r;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return any ? 0 : -ESRCH;
		any = true;
		rd->n += (size_t)got;
		r = reader_lines(rd);
		if (r == 0)
			r = reader_room(rd);
		if (r != 0)
			return r;
	}
}

int proc_lines_read(int fd, proc_line_fn *fn, void *arg)
{
	struct reader rd = {.fd = fd, .cap = BUFFER_BYTES, .fn = fn, .arg = arg};
	int r;

	rd.buffer = malloc(rd.cap + 1);
	if (!rd.buffer)
		return -ENOMEM;
	r = reader_run(&rd);
	free(rd.buffer);
	return r;
}

struct maps {
	int fd;	  /* borrowed */
	u32 line; /* number of the line that is read */
	u32 flags;
	proc_mapping_fn *fn;
	void *arg;
};

static int bad_line(const struct maps *maps)
{
	char text[48];

	snprintf(text, sizeof(text), "line %u is not a mapping", maps->line);
	log_damage(maps->fd, text);
	return -EINVAL;
}

static int maps_line(void *arg, char *line, size_t n)
{
	struct maps *maps = arg;
	struct cursor c = {.pos = line, .end = line + n};
	struct proc_mapping m = {};

	maps->line++;
	if (!take_head(&c, &m))
		return bad_line(maps);
	if (!(maps->flags & PROC_MAPS_ALL) && !(m.prot & PROT_EXEC))
		return 0;
	if (parse_tail(&c, line + n, &m) < 0)
		return bad_line(maps);
	return maps->fn(maps->arg, &m);
}

int proc_maps_read_fd(int fd, u32 flags, proc_mapping_fn *fn, void *arg)
{
	struct maps maps = {.fd = fd, .flags = flags, .fn = fn, .arg = arg};

	return proc_lines_read(fd, maps_line, &maps);
}

int proc_maps_read(u32 pid, u32 flags, proc_mapping_fn *fn, void *arg)
{
	_cleanup_close_ int fd = -1;
	char name[32];

	snprintf(name, sizeof(name), "/proc/%u/maps", pid);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	return proc_maps_read_fd(fd, flags, fn, arg);
}
