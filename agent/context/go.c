/* SPDX-License-Identifier: Apache-2.0 */
/* Labels of goroutines: their offsets follow from the release of Go that built the program. */
#include <errno.h>

#include "agent/context/internal.h"
#include "runtime/go/go.h"

/* Finds the range of segments that are never written, code and constants, as svmas. */
static void find_fixed(const struct elf_file *elf, struct context_go *ret)
{
	u64 end = 0;

	for (u32 i = 0; i < elf->n_segments; i++) {
		const struct elf_segment *s = &elf->segments[i];

		if (s->flags & PF_W)
			break;
		if (!i)
			ret->fixed = s->svma;
		end = s->svma + s->memsz;
	}
	ret->n_fixed = end > ret->fixed ? end - ret->fixed : 0;
}

static int go_find(const struct procman_binary *b, struct context_binary *ret)
{
	struct go_labels l;
	int r = go_labels_find(b->elf, &l);

	if (r == 0)
		ret->go = (struct context_go){
			.g_tls = l.g_tls,
			.m_curg = l.m_curg,
			.g_id = l.g_id,
			.g_labels = l.g_labels,
			.is_list = l.is_list,
		};
	if (r == 0)
		find_fixed(b->elf, &ret->go);
	return r;
}

static int go_attach(const struct context_target *t, const struct context_binary *b,
		     struct context_process *ret)
{
	ret->go = b->go;
	ret->go.fixed += t->mapping->bias;
	return 0;
}

const struct context_ops context_go = {NULL, go_find, go_attach};
