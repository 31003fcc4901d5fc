/* SPDX-License-Identifier: Apache-2.0 */
/* The two symbols of Elastic's native library, and functions that set them. */
#include <stddef.h>

__attribute__((visibility("default"))) void *elastic_apm_profiling_correlation_process_storage_v1;
__attribute__((visibility("default"))) _Thread_local void *elastic_apm_profiling_correlation_tls_v1;

void set_process_storage(void *storage)
{
	__atomic_store_n(&elastic_apm_profiling_correlation_process_storage_v1, storage,
			 __ATOMIC_SEQ_CST);
}

void set_thread_storage(void *storage)
{
	elastic_apm_profiling_correlation_tls_v1 = storage;
}
