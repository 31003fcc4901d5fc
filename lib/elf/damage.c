/* SPDX-License-Identifier: Apache-2.0 */
#include "elf/damage.h"

#include <errno.h>

#include "base/log.h"

int elf_keep_damage(struct elf_file *f, const char *section, const char *text)
{
	struct elf_file *file = f->outer ? f->outer : f;

	if (file->damage.text[0])
		return -EINVAL;
	diag_set(&file->damage, 0, "%s%s: %s", f->outer ? ".gnu_debugdata: " : "", section, text);
	log_damage(file->fd, file->damage.text);
	return -EINVAL;
}

int elf_file_damaged(struct elf_file *f, const char *section, u64 offset, const char *text)
{
	struct diag d = {};

	diag_set_at(&d, 0, offset, "%s", text);
	return elf_keep_damage(f, section, d.text);
}
