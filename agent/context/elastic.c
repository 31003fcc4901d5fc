/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic's universal profiling integration, version 1: a thread-local pointer to the record of a
 * thread, and a pointer to the attributes of the process, which is NULL until its socket exists.
 */
#include <errno.h>
#include <string.h>

#include "agent/context/internal.h"
#include "agent/runtime/runtime.h"

#define MAX_STORAGE (2 + 3 * 4 + 128 + 128 + CONTEXT_MAX_SOCKET)

static int elastic_find(const struct procman_binary *b, struct context_binary *ret)
{
	int r = tls_find(b->elf, context_elastic.symbol, &ret->tls);

	return r < 0 ? r
		     : tls_find_plain(b->elf,
				      "elastic_apm_profiling_correlation_process_storage_v1",
				      &ret->storage);
}

static int elastic_attach(const struct context_target *t, const struct context_binary *b,
			  struct context_process *ret)
{
	return tls_locate(&b->tls, t->process->pid, t->mapping->bias, &ret->tls[CONTEXT_ELASTIC]);
}

/* Copies a text with a length prefix into n bytes. False: it does not fit. */
static bool take_text(struct buf *b, char *ret, size_t n)
{
	struct buf text;
	u32 length;

	if (!buf_u32(b, &length) || length >= n || !buf_take(b, length, &text))
		return false;
	memcpy(ret, text.pos, length);
	ret[length] = '\0';
	return true;
}

int elastic_parse(const u8 *bytes, size_t n, struct elastic_storage *ret)
{
	struct elastic_storage s;
	struct buf b = buf_of(bytes, n);
	u16 minor;

	if (!buf_u16(&b, &minor) || !take_text(&b, s.service, sizeof(s.service)) ||
	    !take_text(&b, s.environment, sizeof(s.environment)) ||
	    !take_text(&b, s.socket, sizeof(s.socket)))
		return -EINVAL;
	*ret = s;
	return 0;
}

int elastic_read(const struct context_target *t, const struct context_binary *b,
		 struct elastic_storage *ret)
{
	struct runtime_memory m = {t->process->pid};
	u8 bytes[MAX_STORAGE];
	bool failed = false;
	u64 at = runtime_u64(&m, b->storage + t->mapping->bias, &failed);
	size_t n = sizeof(bytes);

	if (failed || !at)
		return -EAGAIN;
	/* The storage may end at the end of its page. */
	if (runtime_read(&m, at, bytes, n) < 0)
		n = 4096 - at % 4096;
	if (n < sizeof(bytes) && runtime_read(&m, at, bytes, n) < 0)
		return -EFAULT;
	return elastic_parse(bytes, n, ret);
}

const struct context_ops context_elastic = {"elastic_apm_profiling_correlation_tls_v1",
					    elastic_find, elastic_attach};
