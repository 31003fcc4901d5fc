/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HotSpot, the VM of OpenJDK and its derivatives: finds its code heaps, and fills what its walker
 * needs.
 */
#include "agent/runtime/hotspot/hotspot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

static bool is_runtime(const struct procman_binary *b)
{
	return str_ends(b->path, "/libjvm.so");
}

static int hotspot_learn(const struct procman_binary *b, struct runtime_binary *ret_bpf,
			 void **ret_learned, struct diag *reterr_diag)
{
	struct hotspot_vm *vm;
	int r = hotspot_vm_learn(b->elf, &vm, reterr_diag);

	if (r < 0)
		return r;
	*ret_bpf = (struct runtime_binary){};
	*ret_learned = vm;
	return 0;
}

static void hotspot_forget(void *learned)
{
	hotspot_vm_destroy(learned);
}

/* ---- a process ---- */

struct range {
	u64 start, end, segmap;
	u32 shift;
};

static int read_heap(const struct runtime_target *t, const struct hotspot_offsets *o, u64 heap,
		     struct range *ret)
{
	const struct runtime_memory *m = &t->memory;
	bool failed = false;

	ret->start = runtime_u64(m, heap + o->of[HF_HEAP_MEMORY] + o->of[HF_SPACE_LOW], &failed);
	ret->end = runtime_u64(m, heap + o->of[HF_HEAP_MEMORY] + o->of[HF_SPACE_HIGH], &failed);
	ret->segmap = runtime_u64(m, heap + o->of[HF_HEAP_SEGMAP] + o->of[HF_SPACE_LOW], &failed);
	ret->shift = runtime_u32(m, heap + o->of[HF_HEAP_SHIFT], &failed);
	if (failed || !ret->start || !ret->segmap)
		return -EAGAIN;
	return ret->end > ret->start && ret->shift < 20 ? 0 : -EINVAL;
}

/* Reads the code heaps. Returns their number, or -EAGAIN if there are none yet. */
static int read_heaps(const struct runtime_target *t, const struct hotspot_vm *vm,
		      const struct hotspot_offsets *o, struct range *ret)
{
	const struct runtime_memory *m = &t->memory;
	bool failed = false;
	u64 list, data;
	u32 n;
	int r = 0;

	if (!vm->statics[HS_HEAPS]) {
		list = runtime_u64(m, vm->statics[HS_HEAP] + t->bias, &failed);
		r = failed || !list ? -EAGAIN : read_heap(t, o, list, ret);
		return r < 0 ? r : 1;
	}
	list = runtime_u64(m, vm->statics[HS_HEAPS] + t->bias, &failed);
	if (failed || !list)
		return -EAGAIN;
	n = runtime_u32(m, list + o->of[HF_ARRAY_LEN], &failed);
	data = runtime_u64(m, list + o->of[HF_ARRAY_DATA], &failed);
	if (failed || !n || !data)
		return -EAGAIN;
	if (n > HOTSPOT_MAX_HEAPS)
		return -E2BIG;
	for (u32 i = 0; r == 0 && i < n; i++) {
		u64 heap = runtime_u64(m, data + 8ULL * i, &failed);

		r = failed ? -EAGAIN : read_heap(t, o, heap, &ret[i]);
	}
	return r < 0 ? r : (int)n;
}

static int place_heaps(const struct range *ranges, int n, struct hotspot_process *p)
{
	p->base = ranges[0].start;
	for (int i = 1; i < n; i++)
		p->base = MIN(p->base, ranges[i].start);
	for (int i = 0; i < n; i++) {
		if (ranges[i].end - p->base > 1ULL << 31 || ranges[i].shift != ranges[0].shift)
			return -EINVAL;
		p->heaps[i] = (struct hotspot_heap){
			.segmap = ranges[i].segmap,
			.start = (u32)(ranges[i].start - p->base),
			.end = (u32)(ranges[i].end - p->base),
		};
	}
	p->segment_shift = (u8)ranges[0].shift;
	return 0;
}

static int place_interpreter(const struct runtime_target *t, const struct hotspot_vm *vm,
			     const struct hotspot_offsets *o, struct hotspot_process *p)
{
	bool failed = false;
	u64 queue = runtime_u64(&t->memory, vm->statics[HS_INTERPRETER] + t->bias, &failed), start;
	u32 n;

	if (failed || !queue)
		return -EAGAIN;
	start = runtime_u64(&t->memory, queue + o->of[HF_QUEUE_BUFFER], &failed);
	n = runtime_u32(&t->memory, queue + o->of[HF_QUEUE_LIMIT], &failed);
	if (failed || start < p->base)
		return -EAGAIN;
	if (start - p->base > 1ULL << 31 || n > 1 << 24)
		return -EINVAL;
	p->interpreter = (u32)(start - p->base);
	p->interpreter_end = p->interpreter + n;
	return 0;
}

/*
 * Returns the offset of a field of a blob's header for the walker; above 255 only where the
 * walker's field is u16.
 */
static u32 header_offset(const struct hotspot_offsets *o, enum hotspot_field f, u32 max, bool *bad)
{
	if (o->of[f] > max || o->of[f] + 8 > HOTSPOT_HEADER_BYTES) {
		*bad = true;
		return 0;
	}
	return o->of[f];
}

static int place_offsets(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			 struct hotspot_process *p)
{
	bool pointers = hotspot_has(o, HF_BLOB_CODE_BEGIN), bad = false;

	p->orig_pc = (u16)header_offset(o, HF_NM_ORIG_PC, 0xffff, &bad);
	p->compile_id = (u16)header_offset(o, HF_NM_COMPILE_ID, 0xffff, &bad);
	p->deopt = (u16)header_offset(o, pointers ? HF_NM_DEOPT_BEGIN : HF_NM_DEOPT_OFFSET, 0xffff,
				      &bad);
	p->name = (u8)header_offset(o, HF_BLOB_NAME, 0xff, &bad);
	p->frame_complete = (u8)header_offset(o, HF_BLOB_FRAME_COMPLETE, 0xff, &bad);
	p->frame_size = (u8)header_offset(o, HF_BLOB_FRAME_SIZE, 0xff, &bad);
	p->code = (u8)header_offset(o, pointers ? HF_BLOB_CODE_BEGIN : HF_BLOB_CODE_OFFSET, 0xff,
				    &bad);
	p->code_end =
		(u8)header_offset(o, pointers ? HF_BLOB_CODE_END : HF_BLOB_DATA_OFFSET, 0xff, &bad);
	p->const_method = (u8)o->of[HF_METHOD_CONST];
	p->const_method_size = (u8)vm->sizes[HZ_CONST_METHOD];
	p->block_header = (u8)vm->sizes[HZ_HEAP_BLOCK];
	if (bad || o->of[HF_METHOD_CONST] > 0xff || vm->sizes[HZ_CONST_METHOD] > 0xff ||
	    vm->sizes[HZ_HEAP_BLOCK] > 0xff || vm->sizes[HZ_CONTINUATION_ENTRY] > 0x7e0)
		return -ENOTSUP;
	/* The entry is aligned on the stack. 21 to 24 do not export its size. */
	p->entry_words = (u8)(((vm->sizes[HZ_CONTINUATION_ENTRY] ?: 64) + 15) / 16 * 2);
	if (hotspot_has(o, HF_THREAD_SAVED_PC))
		p->saved_pc = (u16)o->of[HF_THREAD_SAVED_PC];
	if (!pointers)
		p->flags |= HOTSPOT_CODE_OFFSETS;
	/* s16 since 23, because the blob's kind and mutable data were moved next to it. */
	if (hotspot_has(o, HF_NM_IMMUTABLE))
		p->flags |= HOTSPOT_SHORT_COMPLETE;
	if (o->major >= 9)
		p->flags |= HOTSPOT_HAS_MIRROR;
	return 0;
}

/* Fills the offsets that hotspot_cookie() needs. */
static void place_cookie(const struct hotspot_vm *vm, const struct hotspot_offsets *o,
			 struct hotspot_process *p)
{
	/* The walker reads four 16-bit indices; that of the name is the first. */
	if (o->of[HF_CONST_NAME] > 0xff || o->of[HF_CONST_CONSTANTS] > 0xff)
		return;
	p->names = (u8)o->of[HF_CONST_NAME];
	p->constants = (u8)o->of[HF_CONST_CONSTANTS];
	if (o->of[HF_POOL_HOLDER] > 0xff || o->of[HF_CLASS_NAME] > 0xff ||
	    o->of[HF_SYMBOL_REFCOUNT] > 6 || vm->sizes[HZ_CONSTANT_POOL] > 0xff)
		return;
	p->holder = (u8)o->of[HF_POOL_HOLDER];
	p->class_name = (u8)o->of[HF_CLASS_NAME];
	p->pool_size = (u8)vm->sizes[HZ_CONSTANT_POOL];
	p->flags |= HOTSPOT_TELLS_CLASSES | (o->of[HF_SYMBOL_REFCOUNT] << 3 & HOTSPOT_COUNT);
}

static int hotspot_attach(const struct runtime_target *t, const void *learned,
			  struct runtime_process *ret)
{
	const struct hotspot_vm *vm = learned;
	struct range ranges[HOTSPOT_MAX_HEAPS];
	struct hotspot_process p = {};
	struct hotspot_offsets o;
	int n, r = hotspot_vm_read(vm, t, &o);

	if (r < 0)
		return r == -EFAULT ? -EAGAIN : r;
	n = read_heaps(t, vm, &o, ranges);
	if (n < 0)
		return n;
	r = place_heaps(ranges, n, &p);
	if (r == 0)
		r = place_interpreter(t, vm, &o, &p);
	if (r == 0)
		r = place_offsets(vm, &o, &p);
	if (r < 0)
		return r;
	place_cookie(vm, &o, &p);
	memcpy(ret->room, &p, sizeof(p));
	/* Mark the reserved memory: heaps grow into it before user space notices. */
	for (int i = 0; i < n && i < RUNTIME_MAX_RESERVED; i++) {
		ret->reserved[i].start = ranges[i].start;
		ret->reserved[i].end = ranges[i].end;
	}
	return 0;
}

static int hotspot_attach_locks(const struct runtime_target *t, const void *learned,
				struct runtime_lock *ret)
{
	struct hotspot_lock p = {};
	struct hotspot_offsets o;
	int r = hotspot_vm_read(learned, t, &o);

	if (r == 0)
		r = hotspot_attach_monitors(learned, &o, t, &p);
	memcpy(ret->room, &p, sizeof(p));
	return r;
}

static int hotspot_name_frame(const struct runtime_target *t, const void *learned, u64 address,
			      u64 where, struct runtime_names *ret)
{
	struct hotspot_offsets o;
	int r = hotspot_vm_read(learned, t, &o);

	return r < 0 ? r : hotspot_name(learned, &o, t, address, where, ret);
}

static bool hotspot_covers(const void *learned, const struct runtime_process *process, u64 avma)
{
	struct hotspot_process p;

	(void)learned;
	memcpy(&p, process->room, sizeof(p));
	for (u32 i = 0; i < HOTSPOT_MAX_HEAPS; i++)
		if (avma - p.base >= p.heaps[i].start && avma - p.base < p.heaps[i].end)
			return true;
	return false;
}

static int hotspot_flag(const struct runtime_target *t, const void *learned, const char *name,
			u64 *ret_avma)
{
	struct hotspot_offsets o;
	u64 at = 0;
	int r = hotspot_vm_read(learned, t, &o);

	if (r < 0)
		return r;
	hotspot_find_flags(learned, &o, t, &name, 1, &at);
	if (!at)
		return -ENOENT;
	*ret_avma = at;
	return 0;
}

static void hotspot_describe_binary(const void *learned, char *ret, size_t n)
{
	hotspot_describe(learned, ret, n);
}

static void otel_version(const void *learned, char *ret, size_t n)
{
	snprintf(ret, n, "%s", ((const struct hotspot_vm *)learned)->release);
}

static void hotspot_tell_missing(const struct runtime_target *t, const void *learned,
				 void (*line)(void *arg, const char *text), void *arg)
{
	hotspot_missing(t, learned, line, arg);
}

const struct runtime_ops runtime_hotspot = {
	.is_runtime = is_runtime,
	.learn = hotspot_learn,
	.forget = hotspot_forget,
	.attach = hotspot_attach,
	.attach_locks = hotspot_attach_locks,
	.name = hotspot_name_frame,
	.covers = hotspot_covers,
	.describe = hotspot_describe_binary,
	.otel_name = "OpenJDK Runtime Environment",
	.otel_version = otel_version,
	.missing = hotspot_tell_missing,
	.flag = hotspot_flag,
	.jit_memory = 1u << JIT_MEMORY_ANON,
	.tasks = &hotspot_tasks,
};
