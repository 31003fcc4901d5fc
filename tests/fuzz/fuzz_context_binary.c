/* SPDX-License-Identifier: Apache-2.0 */
/* ELF files that may publish contexts: looks for their thread variables and labels of Go. */
#include <stdint.h>

#include "agent/context/internal.h"
#include "runtime/go/go.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_elf_file_ struct elf_file *f = NULL;
	struct go_labels labels;
	struct tls_variable v;
	u64 svma;

	if (elf_file_open_memory(data, size, NULL, &f) < 0)
		return 0;
	(void)tls_find(f, "otel_thread_ctx_v1", &v);
	(void)tls_find_plain(f, "plain", &svma);
	(void)go_labels_find(f, &labels);
	return 0;
}
