/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: what changed the names that everybody sees, when, and by whose token. A line of
 * JSON each in a file that only its owner may read, and a line of the server's log. Above
 * MAX_BYTES the file becomes FILE.1, in the place of an earlier one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "server/api/internal.h"

#define MAX_BYTES (16 << 20)

static int append(const char *path, const struct str *line)
{
	_cleanup_close_ int fd = open(
		path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	_cleanup_str_ struct str old = {};
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > MAX_BYTES) {
		str_printf(&old, "%s.1", path);
		if (old.failed || rename(path, str_get(&old)) < 0)
			return -errno;
		return append(path, line);
	}
	n = write(fd, line->data, line->n); /* one write: lines of two requests do not mix */
	return n == (ssize_t)line->n && fsync(fd) == 0 ? 0 : -EIO;
}

void api_audit(struct api_call *c, const char *action, const char *object)
{
	const char *path = c->a->o.audit_log, *who = c->r->token_name;
	_cleanup_str_ struct str line = {};
	struct json_writer w = {.out = &line};
	time_t now = time(NULL);
	struct tm tm;
	char when[32];
	int r;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	log_info("audit: %s %s by %s from %s", action, object, *who ? who : "nobody by name",
		 c->r->peer);
	if (!path)
		return;
	json_open_object(&w, NULL);
	json_put_text(&w, "time", when);
	json_put_text(&w, "action", action);
	json_put_text(&w, "object", object);
	json_put_text(&w, "token", who);
	json_put_text(&w, "peer", c->r->peer);
	json_close(&w);
	str_putc(&line, '\n');
	pthread_mutex_lock(&c->a->audit_lock);
	r = line.failed ? -ENOMEM : append(path, &line);
	pthread_mutex_unlock(&c->a->audit_lock);
	if (r < 0)
		log_warn("%s: cannot write the audit log: %s", path, strerror(-r));
}
