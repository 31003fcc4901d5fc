/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Polar Signals' custom labels: an exported thread-local pointer, with a version that must be
 * known.
 */
#include <errno.h>
#include <string.h>

#include "agent/context/internal.h"

#define VERSION 1

static int polar_find(const struct procman_binary *b, struct context_binary *ret)
{
	struct tls_variable v;
	u32 version;
	u64 at;
	int r = tls_find(b->elf, context_polar.symbol, &v);

	if (r == 0)
		r = tls_find_plain(b->elf, "custom_labels_abi_version", &at);
	if (r < 0)
		return r;
	if (elf_file_copy(b->elf, at, sizeof(version), &version) != sizeof(version) ||
	    version != VERSION)
		return -ENOENT;
	ret->tls = v;
	return 0;
}

static int polar_attach(const struct context_target *t, const struct context_binary *b,
			struct context_process *ret)
{
	return tls_locate(&b->tls, t->process->pid, t->mapping->bias, &ret->tls[CONTEXT_POLAR]);
}

const struct context_ops context_polar = {"custom_labels_current_set", polar_find, polar_attach};
