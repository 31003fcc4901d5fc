/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the HotSpot runtime: what libjvm.so contains about the VM.
 *
 * HotSpot exports tables of its structs for debuggers (vmStructs.cpp): gHotSpotVMStructs has an
 * entry for each field, with its offset or, for a static field, its address; gHotSpotVMTypes has
 * sizes. Names, static addresses and sizes are in the file. An initialiser stores the offsets when
 * the library is loaded, so they are read from each process and used for that process only.
 */
#pragma once

#include "abi/runtime_hotspot.h"
#include "agent/runtime/runtime.h"
#include "base/buf.h"
#include "disasm/disasm.h"

enum hotspot_static {
	HS_HEAP,
	HS_HEAPS,
	HS_INTERPRETER,
	HS_JDK_VERSION,
	HS_VM_MAJOR,
	HS_FLAGS,
	HS_N_FLAGS,
	HS_THREADS,
	HS_FIRST_THREAD,
	HS_COLLECTED_HEAP,
	HS_OBJECT_CLASS,
	HS_OOP_BASE,
	HS_OOP_SHIFT,
	HS_CLASS_BASE,
	HS_CLASS_SHIFT,
	HS_N
};

enum hotspot_field {
	HF_BLOB_NAME,
	HF_BLOB_FRAME_COMPLETE,
	HF_BLOB_FRAME_SIZE,
	HF_BLOB_CODE_BEGIN,
	HF_BLOB_CODE_OFFSET,
	HF_BLOB_CODE_END,
	HF_BLOB_DATA_OFFSET,
	HF_BLOB_SIZE,
	HF_BLOB_RELOCATION_SIZE,
	HF_BLOB_MUTABLE_DATA,
	HF_BLOB_MUTABLE_SIZE,
	HF_HEAP_MEMORY,
	HF_HEAP_SEGMAP,
	HF_HEAP_SHIFT,
	HF_BLOCK_USED,
	HF_SPACE_LOW,
	HF_SPACE_HIGH,
	HF_QUEUE_BUFFER,
	HF_QUEUE_LIMIT,
	HF_ARRAY_LEN,
	HF_ARRAY_DATA,
	HF_METHOD_CONST,
	HF_CONST_CONSTANTS,
	HF_CONST_CODE_SIZE,
	HF_CONST_SIZE,
	HF_CONST_FLAGS,
	HF_CONST_NAME,
	HF_POOL_HOLDER,
	HF_POOL_LENGTH,
	HF_POOL_SOURCE,
	HF_CLASS_SOURCE,
	HF_CLASS_NAME,
	HF_SYMBOL_LENGTH,
	HF_SYMBOL_BODY,
	HF_SYMBOL_REFCOUNT,
	HF_PCDESC_PC,
	HF_PCDESC_SCOPE,
	HF_NM_METHOD,
	HF_NM_DEOPT_BEGIN,
	HF_NM_DEOPT_OFFSET,
	HF_NM_ORIG_PC,
	HF_NM_COMPILE_ID,
	HF_NM_METADATA,
	HF_NM_SCOPES_BEGIN,
	HF_NM_SCOPES_DATA,
	HF_NM_SCOPES_PCS,
	HF_NM_DEPENDENCIES,
	HF_NM_IMMUTABLE,
	HF_NM_IMMUTABLE_SIZE,
	HF_THREAD_SAVED_PC,
	HF_FLAG_NAME,
	HF_FLAG_ADDRESS,
	HF_THREAD_PENDING,
	HF_THREAD_OS,
	HF_THREAD_NEXT,
	HF_THREAD_OWNER_ID,
	HF_STACK_BASE,
	HF_STACK_SIZE,
	HF_OS_ID,
	HF_OS_PTHREAD,
	HF_MONITOR_OWNER,
	HF_LIST_LENGTH,
	HF_LIST_THREADS,
	HF_CLASS_LAYOUT,
	HF_CLASS_MIRROR,
	HF_CLASS_NEXT,
	HF_CLASS_LOADER,
	HF_CLASS_FIELDS,
	HF_CLASS_POOL,
	HF_LOADER_CLASSES,
	HF_BYTES_DATA,
	HF_GC_ACTIVE,
	HF_GC_COUNT,
	HF_N
};

enum hotspot_size {
	HZ_HEAP_BLOCK,
	HZ_CONST_METHOD,
	HZ_CONSTANT_POOL,
	HZ_PCDESC,
	HZ_NMETHOD,
	HZ_FLAG,
	HZ_CONTINUATION_ENTRY, /* 0: not exported */
	HZ_N
};

#define HOTSPOT_NONE (~0u)

/* What a libjvm.so exports. Addresses are svmas; 0: there is no such entry. */
struct hotspot_vm {
	u64 statics[HS_N];
	u64 fields[HF_N]; /* svma of the word that holds the field's offset */
	u64 first, end;	  /* all these words are in [first, end) */
	u64 mark_shift;	  /* svma of the u64 that says where a mark word has the class; 0: none */
	u32 sizes[HZ_N];
	u32 major;	       /* version in the file, for people; 0: none */
	char release[64];      /* the full version: 17.0.15+6; "": not found */
	struct disasm *disasm; /* owned */
	u32 n_stubs;
	struct hotspot_stub *stubs; /* owned; the static fields of StubRoutines */
};

struct hotspot_stub {
	u64 svma; /* svma of the word that holds the stub's address */
	char name[48];
};

/* Offsets read from a process, by enum hotspot_field; HOTSPOT_NONE: there is no such field. */
struct hotspot_offsets {
	u32 of[HF_N];
	u32 major;
	u32 exclude; /* UNSIGNED5 adds this to each byte: 1 from 20 on */
};

/* vm.c */
/* *ret is freed with hotspot_vm_destroy(). On failure the diag says what is missing. */
int hotspot_vm_learn(struct elf_file *f, struct hotspot_vm **ret, struct diag *reterr_diag);
void hotspot_vm_destroy(struct hotspot_vm *vm);
/*
 * Reads the offsets of a process. -EAGAIN: libjvm's initialisers have not run; -EINVAL: the offsets
 * are implausible.
 */
int hotspot_vm_read(const struct hotspot_vm *vm, const struct runtime_target *t,
		    struct hotspot_offsets *ret);
static inline bool hotspot_has(const struct hotspot_offsets *o, enum hotspot_field f)
{
	return o->of[f] != HOTSPOT_NONE;
}

/* monitor.c */
/*
 * Fills what tells the owners of monitors, as runtime_ops.attach_locks() does.
 */
int hotspot_attach_monitors(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			    const struct runtime_target *t, struct hotspot_lock *p);
/* flags.c */
enum hotspot_flag { FLAG_UNKNOWN, FLAG_OFF, FLAG_ON };
/* Finds n flags in the VM's table of flags: the avmas of their values; 0: it has none. */
void hotspot_find_flags(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			const struct runtime_target *t, const char *const *names, u32 n, u64 *ret);
/* Reads n flags of type bool from the VM's table of flags; those that it lacks are unknown. */
void hotspot_read_flags(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			const struct runtime_target *t, const char *const *names, u32 n,
			enum hotspot_flag *ret);

/* virtual.c */
extern const struct runtime_task_ops hotspot_tasks;
/* Why virtual threads of the process that wait are not seen, or not all of them; NULL: all are. */
const char *hotspot_virtual_missing(const struct hotspot_vm *vm, const struct runtime_target *t);

/* doctor.c */
/* runtime_ops.describe() and .missing(). */
void hotspot_describe(const struct hotspot_vm *vm, char *ret, size_t n);
void hotspot_missing(const struct runtime_target *t, const struct hotspot_vm *vm,
		     void (*line)(void *arg, const char *text), void *arg);

/* name.c */
/* Reads a number; false: the bytes end, or are no number. */
bool hotspot_unsigned5(struct buf *b, u32 exclude, u32 *ret);
/* Names a frame as runtime_ops.name() does. */
int hotspot_name(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
		 const struct runtime_target *t, u64 address, u64 where, struct runtime_names *ret);
