/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenTelemetry's thread context as Datadog's addon for Node.js publishes it. V8's layout
 * determines where the JavaScript object holds the pointer to the record. The addon is built for
 * one ABI of Node.js, which is in its file name.
 */
#include <stdio.h>
#include <string.h>

#include "agent/context/internal.h"

#define ABI_NODE_22 127
/* Measured with @datadog/pprof 5.20 on Node 22, and on 24 and 26. */
#define RECORD_NODE_22 24
#define RECORD_LATER 32

static u32 record_of(const char *path)
{
	const char *abi = strstr(path, ".abi");
	u32 n;

	return abi && sscanf(abi, ".abi%u.node", &n) == 1 && n <= ABI_NODE_22 ? RECORD_NODE_22
									      : RECORD_LATER;
}

static int node_find(const struct procman_binary *b, struct context_binary *ret)
{
	ret->node_record = record_of(b->path);
	return tls_find(b->elf, context_node.symbol, &ret->tls);
}

static int node_attach(const struct context_target *t, const struct context_binary *b,
		       struct context_process *ret)
{
	ret->node_record = b->node_record;
	return tls_locate(&b->tls, t->process->pid, t->mapping->bias, &ret->tls[CONTEXT_NODE]);
}

const struct context_ops context_node = {"otel_thread_ctx_nodejs_v1", node_find, node_attach};
