/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates and frees objects of 16 to 1039 bytes, of which a thousand live, as fast as it can:
 *
 *	bench-alloc COUNTER
 *
 * The first 8 bytes of the file COUNTER count the calls of malloc(). Ends when it is killed.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define OBJECTS 1000

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
	volatile uint64_t *counter;
	static char *objects[OBJECTS];
	uint32_t random = 1;

	if (fd < 0)
		return 2;
	counter = mmap(NULL, sizeof(*counter), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (counter == MAP_FAILED)
		return 1;
	for (;; (*counter)++) {
		char **at;

		random = random * 1664525 + 1013904223;
		at = &objects[(random >> 10) % OBJECTS];
		free(*at);
		*at = malloc(16 + (random >> 22));
		if (!*at)
			return 1;
		**at = 1;
	}
}
