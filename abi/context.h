/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Which trace and span a thread works for: what user space tells the readers in bpf/context. One
 * entry for each process that publishes it in any way.
 */
#pragma once

#include <linux/types.h>

enum context_id {
	CONTEXT_NONE,
#define CONTEXT(id, ...) CONTEXT_##id,
#include "abi/tbl/context.tbl"
#undef CONTEXT
	CONTEXT_N,
	/* By no process: another program's map, the last that is asked. */
	CONTEXT_OBI = CONTEXT_N,
};

enum context_tls_how {
	CONTEXT_TLS_NONE,
	CONTEXT_TLS_STATIC, /* at a distance from the thread pointer that all threads have */
	CONTEXT_TLS_DTV,    /* in a block that the thread has when it first asked for it */
};

/* Where a thread has its copy of a thread-local variable. */
struct context_tls {
	__u32 how;    /* enum context_tls_how */
	__u32 module; /* DTV: number of the library */
	__s64 offset; /* from the thread pointer; DTV: in the block */
};

/* What Go's releases put where; a thread's g is in its memory, on arm64 in a register. */
struct context_go {
	__s64 g_tls;	/* of g, from the thread pointer */
	__u16 m_curg;	/* in m */
	__u16 g_id;	/* in g; 0: a scheduler, or a handler of signals */
	__u16 g_labels; /* in g */
	__u16 is_list;	/* else a map: before 1.24 */
	__u64 fixed;	/* where its code and constants are, which nobody writes to */
	__u64 n_fixed;
};

struct context_process {
	__u64 start_stack; /* which image, as in struct process_entry */
	__u32 sources;	   /* bits by enum context_id */
	__s32 dtv_at;	   /* where a thread has its vector of blocks, from the thread pointer, */
	__u32 dtv_slot;	   /* how many bytes of it each has, */
	__u32 dtv_before;  /* and how far in front of it stands how many there are */
	__u32 node_record; /* Node.js: of the record's address in its object */
	__u16 otel_behind; /* BPF has seen a record at CONTEXT_OTEL_BEHIND, */
	__u16 otel_ahead;  /* and so many bytes in one, or as many as are worth the reading */
	struct context_tls tls[CONTEXT_N];
	struct context_go go;
} __attribute__((aligned(64))); /* a sample of a span finds most processes' in one line */
/* In their map; the first is nobody's. */
#define CONTEXT_MAX_PROCESSES 4096
/* OBI's map, which it pins there. */
#define CONTEXT_OBI_MAP "/sys/fs/bpf/otel/traces_ctx_v1"

/* OpenTelemetry's record of a thread (OTEP 4947), in the thread's memory; attributes follow. */
struct context_otel_record {
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 valid; /* 1, and only 1: it is whole */
	__u8 flags;
	__u16 n_attributes; /* bytes of them */
};
_Static_assert(sizeof(struct context_otel_record) == 28, "OTEP 4947");
/* From the variable that points to it to libculprit-context's: one read has both. */
#define CONTEXT_OTEL_BEHIND 12

/* Elastic's, in the thread's memory. */
struct context_elastic_record {
	__u8 minor[2]; /* not aligned: the record is packed */
	__u8 valid;    /* 0: it is being written */
	__u8 present;  /* 0: no trace */
	__u8 flags;
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 root_id[8]; /* the local root span */
};
_Static_assert(sizeof(struct context_elastic_record) == 37, "version 1");
