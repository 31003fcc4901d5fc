/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints where a Go program has its memory profile: go_heap FILE. The addresses of the rate and of
 * the cycle, whether the cycle is shifted, and the addresses that may head the list.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "runtime/go/go.h"

int main(int argc, char **argv)
{
	_cleanup_elf_file_ struct elf_file *elf = NULL;
	struct go_heap h = {};
	struct diag diag = {};
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1, r;

	if (fd < 0) {
		fprintf(stderr, "usage: go_heap FILE\n");
		return 2;
	}
	r = elf_file_open(fd, &diag, &elf);
	if (r == 0)
		r = go_heap_find(elf, &h);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-r));
		return 1;
	}
	printf("%llx %llx %d", h.rate, h.cycle, h.is_shifted);
	for (u32 i = 0; i < h.n_lists; i++)
		printf(" %llx", h.lists[i]);
	printf("\n");
	return 0;
}
