/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the labels of a goroutine. go_layout_read() reads one offset from the program's code; the
 * others, fields of runtime.g and runtime.m, follow from the release. They were taken from the
 * source of each release and are the same on all 64-bit machines.
 */
#include <errno.h>
#include <string.h>

#include "runtime/go/go.h"
#include "runtime/go/pclntab.h"
#include "runtime/go/switch.h"

/* Offsets of each release up to the next entry; 0: unknown. */
static const struct {
	u32 release;
	u16 g_id, g_labels, m_curg;
	bool is_list;
} layouts[] = {
	{13, 152, 344, 192, false}, {17, 152, 360, 192, false}, {21, 152, 344, 192, false},
	{23, 160, 352, 192, false}, {24, 160, 352, 192, true},	{25, 152, 344, 184, true},
	{26, 152, 352, 184, true},  {28, 0, 0, 0, false},
};

/* On amd64 g is stored just before the thread control block, unless Go is linked with C code. */
#define USUAL_G_TLS (-8)

static int find_layout(u32 release, struct go_labels *ret)
{
	for (size_t i = ARRAY_SIZE(layouts); i--;) {
		if (release < layouts[i].release)
			continue;
		ret->g_id = layouts[i].g_id;
		ret->g_labels = layouts[i].g_labels;
		ret->m_curg = layouts[i].m_curg;
		ret->is_list = layouts[i].is_list;
		return ret->g_labels ? 0 : -ENOTSUP;
	}
	return -ENOTSUP;
}

static void read_code(struct elf_file *elf, struct go_labels *ret)
{
	struct go_layout layout = {};
	struct pclntab t = {};

	if (pclntab_open_with_text(elf, &t) == 0)
		go_layout_read(&t, &layout);
	if (!layout.known)
		return;
	ret->g_tls = layout.g_tls;
	ret->m_curg = (u16)layout.m_curg;
}

int go_labels_find(struct elf_file *elf, struct go_labels *ret)
{
	struct go_labels l = {.g_tls = USUAL_G_TLS};
	u32 release;
	int r;

	if (!go_release(elf, &release))
		return -ENOTSUP;
	r = find_layout(release, &l);
	if (r < 0)
		return r;
	read_code(elf, &l);
	*ret = l;
	return 0;
}
