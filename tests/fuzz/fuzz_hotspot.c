/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HotSpot's tables in a damaged libjvm.so, and names from the damaged memory of a JVM.
 * tests/unit/hotspot_image.h builds both, the memory at a fixed address of this process. The input
 * chooses a version and damages the file or the memory:
 *
 *	u8	version
 *	u8	odd: the file is damaged, else the memory
 *	{u16 index of a word, u64 its new value} …
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/hotspot_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const u32 versions[] = {8, 11, 17, 21, 24, 25, 27};

static void change(u8 *bytes, size_t n, const u8 *data, size_t size)
{
	for (; size >= 10; data += 10, size -= 10) {
		u16 at;

		memcpy(&at, data, 2);
		memcpy(bytes + at % (n / 8) * 8, data + 2, 8);
	}
}

/* Returns NULL if the file was refused. */
static void *learn(u32 version, const u8 *changes, size_t n_changes)
{
	struct procman_binary binary = {.path = "/libjvm.so"};
	struct runtime_binary bpf;
	void *learned = NULL;
	char what[320];
	struct str file;

	image_write_file(version, NULL, &file);
	change((u8 *)file.data, file.n, changes, n_changes);
	if (elf_file_open_memory(file.data, file.n, NULL, &binary.elf) == 0 &&
	    runtime_hotspot.learn(&binary, &bpf, &learned, NULL) == 0)
		runtime_hotspot.describe(learned, what, sizeof(what));
	elf_file_destroy(binary.elf);
	str_deinit(&file);
	return learned;
}

/* Reads the compilation's id from memory, with the offset that the (damaged) process has for it. */
static bool compilation(const struct hotspot_vm *vm, const struct runtime_target *t, u32 *ret)
{
	struct hotspot_offsets o;
	bool failed = false;

	if (hotspot_vm_read(vm, t, &o) < 0)
		return false;
	*ret = runtime_u32(&t->memory, HOTSPOT_IMAGE + IMAGE_NMETHOD + o.of[HF_NM_COMPILE_ID],
			   &failed);
	return !failed;
}

static int name(const struct runtime_target *t, const void *learned, struct arena *arena, u64 place,
		u64 where)
{
	struct runtime_names names = {.arena = arena};
	int r = runtime_hotspot.name(t, learned, HOTSPOT_IMAGE + place, where, &names);

	if (r == 0 && (!names.n || names.n > RUNTIME_MAX_INLINED))
		abort();
	for (u32 i = 0; r == 0 && i < names.n; i++)
		if (!names.frames[i].function || !*names.frames[i].function)
			abort();
	return r;
}

static void attach(const struct runtime_target *t, const void *learned)
{
	struct runtime_process process = {};
	struct hotspot_process p;

	if (runtime_hotspot.attach(t, learned, &process) < 0)
		return;
	memcpy(&p, process.room, sizeof(p));
	/* The walker must be able to use any accepted process. */
	if (p.name + 8 > HOTSPOT_HEADER_BYTES || p.code + 4 > HOTSPOT_HEADER_BYTES ||
	    p.code_end + 4 > HOTSPOT_HEADER_BYTES || p.orig_pc + 4 > HOTSPOT_HEADER_BYTES ||
	    p.compile_id + 4 > HOTSPOT_HEADER_BYTES || p.deopt + 4 > HOTSPOT_HEADER_BYTES ||
	    p.heaps[0].start >= p.heaps[0].end || p.segment_shift >= 20)
		abort();
	(void)runtime_hotspot.covers(learned, &process, HOTSPOT_IMAGE + IMAGE_NMETHOD);
}

static void line(void *arg, const char *text)
{
	(void)arg;
	if (!*text)
		abort();
}

static void use(const void *learned, u32 outer)
{
	/* One arena for all names: names are small, and an arena's block is not. */
	struct arena arena = ARENA_INIT(16 << 20);
	struct procman_process process = {.pid = (u32)getpid()};
	struct runtime_target t = image_target(&process);
	u32 id;

	attach(&t, learned);
	runtime_hotspot.missing(&t, learned, line, NULL);
	for (u32 at = 0; at < NM_CODE_BYTES; at += 5) {
		int r = name(&t, learned, &arena, IMAGE_NMETHOD,
			     image_where(HOTSPOT_COMPILED, at, IMAGE_COMPILE_ID));

		/* The name must not be that of another compilation. */
		if (r == 0 && (!compilation(learned, &t, &id) || id != IMAGE_COMPILE_ID))
			abort();
	}
	name(&t, learned, &arena, IMAGE_NMETHOD,
	     image_where(HOTSPOT_COMPILED, HOTSPOT_NO_POSITION, IMAGE_COMPILE_ID));
	for (u32 bci = 0; bci < 12; bci += 4)
		name(&t, learned, &arena, IMAGE_OUTER,
		     image_where(HOTSPOT_INTERPRETED, bci, outer));
	name(&t, learned, &arena, IMAGE_STUBS,
	     image_where(HOTSPOT_STUB, 0x124, (u32)(HOTSPOT_IMAGE + IMAGE_STUBS + 0x124)));
	name(&t, learned, &arena, IMAGE_STUBS, image_where(7, 1, 1));
	arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void *learned[ARRAY_SIZE(versions)];
	u32 which, outer;

	if (size < 2)
		return 0;
	which = data[0] % ARRAY_SIZE(versions);
	if (!image_build(versions[which]))
		abort();
	if (data[1] & 1) {
		void *other = learn(versions[which], data + 2, size - 2);

		if (other) {
			use(other, image_cookie(IMAGE_OUTER, 2));
			runtime_hotspot.forget(other);
		}
		return 0;
	}
	if (!learned[which])
		learned[which] = learn(versions[which], NULL, 0);
	if (!learned[which])
		abort();
	outer = image_cookie(IMAGE_OUTER, 2);
	change(image_at(0), HOTSPOT_IMAGE_BYTES, data + 2, size - 2);
	use(learned[which], outer);
	use(learned[which], image_cookie(IMAGE_OUTER, 2));
	return 0;
}
