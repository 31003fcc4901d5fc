/* SPDX-License-Identifier: Apache-2.0 */
/* The parser's side of dumps of Flight Recorder: a file becomes a pprof file. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/parser/internal.h"
#include "base/cleanup.h"
#include "base/message.h"
#include "format/format.h"
#include "profile/profile.h"

/* The file may change meanwhile: these are the bytes that it had. */
static int read_all(int fd, u64 max, u8 **ret, size_t *ret_n)
{
	_cleanup_free_ u8 *data = NULL;
	struct stat st;
	size_t n = 0;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EBADMSG;
	if ((u64)st.st_size > max)
		return -E2BIG;
	data = malloc((size_t)st.st_size + 1);
	if (!data)
		return -ENOMEM;
	while (n < (size_t)st.st_size) {
		ssize_t got = pread(fd, data + n, (size_t)st.st_size - n, (off_t)n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	*ret = take_ptr(data);
	*ret_n = n;
	return 0;
}

static int read_dump(const struct parser_dump_question *q, const u32 *tids, size_t n_tids, int fd,
		     struct str *ret, u64 *ret_last_ns)
{
	const struct profile_flight only = {
		.after_ns = q->after_ns, .by_tlab = q->by_tlab, .tids = tids, .n_tids = n_tids};
	const struct profile_write_options how = {};
	_cleanup_profile_ struct profile *p = NULL;
	_cleanup_free_ u8 *data = NULL;
	size_t n;
	int r = read_all(fd, q->max_bytes, &data, &n);

	if (r == 0)
		r = profile_read_flight(data, n, &only, &p, ret_last_ns, NULL);
	return r < 0 ? r : profile_format_by_name("pprof")->write(p, &how, ret, NULL);
}

int parser_serve_dump(int socket, const struct str *question, int fd)
{
	_cleanup_close_ int dump = fd;
	_cleanup_str_ struct str all = {}, pprof = {};
	struct parser_dump_answer a = {};
	struct parser_dump_question q;
	_cleanup_free_ u32 *tids = NULL;
	size_t n_tids;

	if (question->n < sizeof(q))
		return -EPROTO;
	memcpy(&q, question->data, sizeof(q));
	n_tids = (question->n - sizeof(q)) / sizeof(*tids);
	tids = malloc(n_tids * sizeof(*tids) + 1);
	if (!tids)
		return -ENOMEM;
	memcpy(tids, question->data + sizeof(q), n_tids * sizeof(*tids));
	a.error = read_dump(&q, tids, n_tids, dump, &pprof, &a.last_ns);
	if (a.error == 0 && pprof.n > PARSER_MAX_PROFILE)
		a.error = -E2BIG;
	str_append(&all, &a, sizeof(a));
	if (a.error == 0)
		str_append(&all, pprof.data, pprof.n);
	if (all.failed) {
		a.error = -ENOMEM;
		return message_send(socket, PARSER_ANSWER, &a, sizeof(a), -1);
	}
	return message_send(socket, PARSER_ANSWER, all.data, all.n, -1);
}
