/* SPDX-License-Identifier: Apache-2.0 */
/* OpenTelemetry's thread context (OTEP 4947): an exported thread-local pointer. */
#include "agent/context/internal.h"

static int otel_find(const struct procman_binary *b, struct context_binary *ret)
{
	return tls_find(b->elf, context_otel.symbol, &ret->tls);
}

static int otel_attach(const struct context_target *t, const struct context_binary *b,
		       struct context_process *ret)
{
	return tls_locate(&b->tls, t->process->pid, t->mapping->bias, &ret->tls[CONTEXT_OTEL]);
}

const struct context_ops context_otel = {"otel_thread_ctx_v1", otel_find, otel_attach};
