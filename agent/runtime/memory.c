/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the memory of processes. */
#include <errno.h>
#include <sys/uio.h>

#include "agent/runtime/runtime.h"

int runtime_read(const struct runtime_memory *m, u64 address, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)(uintptr_t)address, n};
	ssize_t got = process_vm_readv((pid_t)m->pid, &local, 1, &remote, 1, 0);

	if (got == (ssize_t)n)
		return 0;
	return got < 0 && errno == ESRCH ? -ESRCH : -EFAULT;
}

u64 runtime_u64(const struct runtime_memory *m, u64 address, bool *failed)
{
	u64 v = 0;

	if (runtime_read(m, address, &v, sizeof(v)) < 0) {
		*failed = true;
		return 0;
	}
	return v;
}

u32 runtime_u32(const struct runtime_memory *m, u64 address, bool *failed)
{
	u32 v = 0;

	if (runtime_read(m, address, &v, sizeof(v)) < 0) {
		*failed = true;
		return 0;
	}
	return v;
}
