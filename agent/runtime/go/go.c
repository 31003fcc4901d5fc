/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go: lib/runtime/go turns its tables into unwind rows, so nothing is learned or attached.
 * goroutines.c finds goroutines that wait, heap.c reads the memory profile.
 */
#include "runtime/go/go.h"

#include "agent/runtime/go/heap.h"
#include "agent/runtime/runtime.h"

static bool go_is_runtime(const struct procman_binary *b)
{
	return elf_file_section(b->elf, ".go.buildinfo", NULL, NULL) == 0 ||
	       elf_file_section(b->elf, ".gopclntab", NULL, NULL) == 0;
}

extern const struct runtime_task_ops go_tasks;

const struct native_runtime_ops native_runtime_go = {
	.is_runtime = go_is_runtime,
	.describe = go_describe,
	.otel_name = "go",
	.otel_version = go_version,
	.tasks = &go_tasks,
	.heap = &go_heap_ops,
};
