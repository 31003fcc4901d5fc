/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

static bool has_written_code(const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *d = NULL;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_TEXTREL)
			return true;
	return false;
}

/*
 * Only of segments that are never writable: what the linker has relocated is in others, and would
 * be read from the file again, without that.
 */
static int drop_pages(struct dl_phdr_info *info, size_t n, void *arg)
{
	const u64 page = (u64)sysconf(_SC_PAGESIZE);

	(void)n;
	(void)arg;
	/* The vDSO has no file. */
	if (!info->dlpi_phnum || has_written_code(info))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		u64 begin = (info->dlpi_addr + h->p_vaddr) & ~(page - 1);
		u64 end = (info->dlpi_addr + h->p_vaddr + h->p_filesz) & ~(page - 1);

		if (h->p_type == PT_LOAD && !(h->p_flags & PF_W) && begin < end)
			(void)madvise((void *)begin, end - begin, MADV_DONTNEED);
	}
	return 0;
}

void memory_give_back(void)
{
	(void)malloc_trim(0);
	(void)dl_iterate_phdr(drop_pages, NULL);
}

struct memory_heap memory_heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return (struct memory_heap){m.uordblks + m.hblkhd, m.fordblks};
}
