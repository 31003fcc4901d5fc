/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names from the damaged memory of a .NET process. tests/unit/dotnet_image.h builds the memory at a
 * fixed address of this process. The input chooses a version and damages the memory:
 *
 *	u8	version
 *	{u16 index of a word, u64 its new value} …
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/dotnet_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const versions[] = {"4.700.22.11601", "8.0.3026.36720", "9.0.725.31616",
				       "10.0.1126.37416"};

static void *learn(u32 which)
{
	struct procman_binary binary = {.path = "/libcoreclr.so"};
	struct runtime_binary bpf;
	void *learned = NULL;
	struct str file;

	image_write_file(versions[which], true, &file);
	if (elf_file_open_memory(file.data, file.n, NULL, &binary.elf) < 0 ||
	    runtime_dotnet.learn(&binary, &bpf, &learned, NULL) < 0)
		abort();
	elf_file_destroy(binary.elf);
	str_deinit(&file);
	return learned;
}

static void name(const struct runtime_target *t, const void *learned, u64 place, u64 where)
{
	struct arena arena = ARENA_INIT(1 << 20);
	struct runtime_names names = {.arena = &arena};
	int r = runtime_dotnet.name(t, learned, DOTNET_IMAGE + place, where, &names);

	if (r == 0 && (names.n != 1 || !names.frames[0].function || !*names.frames[0].function))
		abort();
	arena_deinit(&arena);
}

static void use(struct dotnet_learned *l)
{
	struct procman_process process = {.pid = (u32)getpid()};
	struct runtime_target t = image_target(&process);
	struct runtime_process attached = {};
	struct dotnet_process p;

	if (runtime_dotnet.attach(&t, l, &attached) == 0) {
		memcpy(&p, attached.room, sizeof(p));
		/* The walker reads these words of a range section. */
		if (p.next >= DOTNET_SECTION_BYTES || p.section_flags >= DOTNET_SECTION_BYTES ||
		    p.heap >= DOTNET_SECTION_BYTES || p.module >= DOTNET_SECTION_BYTES)
			abort();
	}
	name(&t, l, IMAGE_METHOD, image_where_compiled());
	name(&t, l, IMAGE_READY_CODE, image_where_ready());
	name(&t, l, IMAGE_READY_CODE + IMAGE_READY_BYTES, image_where_ready());
	image_u64(IMAGE_HEADER + DOTNET_HEADER_METHOD, image_desc(2));
	name(&t, l, IMAGE_METHOD, image_where_compiled());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct dotnet_learned *learned[ARRAY_SIZE(versions)];
	struct dotnet_learned *l;
	u32 which;

	if (!size)
		return 0;
	which = data[0] % ARRAY_SIZE(versions);
	if (!learned[which])
		learned[which] = learn(which);
	l = learned[which];
	/* Half of the inputs damage what attach() reads; the others know the offsets. */
	*l->found = (struct dotnet_found){};
	runtime_dotnet.trim(l);
	if (data[0] & 0x80)
		*l->found = (struct dotnet_found){.list = IMAGE_LIST,
						  .info = IMAGE_INFO_AT,
						  .functions = IMAGE_FUNCTIONS_AT,
						  .methods = IMAGE_METHODS_AT};
	if (!image_build(l->layout))
		abort();
	for (data++, size--; size >= 10; data += 10, size -= 10) {
		u16 at;

		memcpy(&at, data, 2);
		memcpy(image_at(at % (DOTNET_IMAGE_BYTES / 8) * 8ULL), data + 2, 8);
	}
	use(l);
	return 0;
}
