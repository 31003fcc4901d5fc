/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What user space tells the readers in bpf/context: how to find the trace and span of a thread.
 * Each process that publishes contexts has one entry.
 */
#pragma once

#include <linux/types.h>

enum context_id {
	CONTEXT_NONE,
#define CONTEXT(id, ...) CONTEXT_##id,
#include "abi/tbl/context.tbl"
#undef CONTEXT
	CONTEXT_N,
	/* OBI's map, which another program fills; BPF reads OBI's map last. */
	CONTEXT_OBI = CONTEXT_N,
};

enum context_tls_how {
	CONTEXT_TLS_NONE,
	CONTEXT_TLS_STATIC, /* at the same offset from the thread pointer in all threads */
	CONTEXT_TLS_DTV,    /* in a block that each thread allocates at its first access */
};

/* How to find a thread's copy of a thread-local variable. */
struct context_tls {
	__u32 how;    /* enum context_tls_how */
	__u32 module; /* DTV: number of the library */
	__s64 offset; /* from the thread pointer; DTV: in the block */
};

/*
 * Offsets in structs of Go's runtime, by release. x86-64 keeps a thread's g in memory, arm64 in a
 * register.
 */
struct context_go {
	__s64 g_tls;	/* of g, from the thread pointer */
	__u16 m_curg;	/* in m */
	__u16 g_id;	/* in g; a scheduler's or signal handler's g has id 0 */
	__u16 g_labels; /* in g */
	__u16 is_list;	/* labels are a list; else a map (before 1.24) */
	__u64 fixed;	/* avma of the program's read-only code and constants */
	__u64 n_fixed;
};

struct context_process {
	__u64 image;	   /* process_entry.image of the process */
	__u32 sources;	   /* bits by enum context_id */
	__s32 dtv_at;	   /* offset of the thread's DTV pointer from the thread pointer */
	__u32 dtv_slot;	   /* bytes per entry of the DTV */
	__u32 dtv_before;  /* bytes from the DTV's length to the DTV */
	__u32 node_record; /* Node.js: offset of the record's address in its wrapper object */
	__u16 otel_behind; /* set by BPF: a record was at CONTEXT_OTEL_BEHIND */
	__u16 otel_ahead;  /* set by BPF: bytes to read at once for a record and its attributes */
	struct context_tls tls[CONTEXT_N];
	struct context_go go;
} __attribute__((aligned(64))); /* for most processes a sample reads one cache line of the entry */
/* Entries of the map. Entry 0 is unused. */
#define CONTEXT_MAX_PROCESSES 4096
/* Path at which OBI pins its map. */
#define CONTEXT_OBI_MAP "/sys/fs/bpf/otel/traces_ctx_v1"

/*
 * OpenTelemetry's thread record (OTEP 4947) in the thread's memory. Attributes follow the record.
 */
struct context_otel_record {
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 valid; /* 1: the record is complete; other values: the record is incomplete */
	__u8 flags;
	__u16 n_attributes; /* bytes of attributes */
};
_Static_assert(sizeof(struct context_otel_record) == 28, "OTEP 4947");
/*
 * Distance from the pointer variable to the record in libculprit-context: BPF reads both in one
 * call.
 */
#define CONTEXT_OTEL_BEHIND 12

/* Elastic's record in the thread's memory. */
struct context_elastic_record {
	__u8 minor[2]; /* bytes, not u16: the record is packed */
	__u8 valid;    /* 0: the writer is changing the record */
	__u8 present;  /* 0: no trace */
	__u8 flags;
	__u8 trace_id[16];
	__u8 span_id[8];
	__u8 root_id[8]; /* the local root span */
};
_Static_assert(sizeof(struct context_elastic_record) == 37, "version 1");
