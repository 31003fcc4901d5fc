/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of goroutines: where the release of Go that a program was made with has them. */
#include <errno.h>

#include "agent/context/internal.h"
#include "unwind/unwind.h"

static int go_find(const struct procman_binary *b, struct context_binary *ret)
{
	struct unwind_go_labels l;
	int r = b->is_go ? unwind_go_labels(b->elf, &l) : -ENOENT;

	if (r == 0)
		ret->go = (struct context_go){
			.g_tls = l.g_tls,
			.m_curg = l.m_curg,
			.g_id = l.g_id,
			.g_labels = l.g_labels,
			.is_list = l.is_list,
		};
	return r;
}

static int go_attach(const struct context_target *t, const struct context_binary *b,
		     struct context_process *ret)
{
	ret->go = b->go;
	return 0;
}

const struct context_ops context_go = {go_find, go_attach};
