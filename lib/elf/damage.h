/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lib/elf: elf_file_damaged() with a text that has its offset. */
#pragma once

#include "elf/elf.h"

int elf_keep_damage(struct elf_file *f, const char *section, const char *text);
