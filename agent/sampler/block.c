/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to block devices: the user half of bpf/prog/block.bpf.c. */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/sampler/source.h"
#include "block.skel.h"

SOURCE_SKELETON(block)

/* The arguments of a tracepoint; 0: there is none of that name. */
static u32 n_arguments(const struct btf *btf, const char *name)
{
	char type[64];
	const struct btf_type *t;
	s32 id;

	snprintf(type, sizeof(type), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, type, BTF_KIND_TYPEDEF);
	t = id > 0 ? btf__type_by_id(btf, (u32)id) : NULL;
	t = t ? btf__type_by_id(btf, t->type) : NULL; /* a pointer to a function */
	t = t && btf_is_ptr(t) ? btf__type_by_id(btf, t->type) : NULL;
	return t && btf_is_func_proto(t) ? btf_vlen(t) - 1 : 0; /* the first is the probe's own */
}

static int open_block(struct source *s)
{
	struct btf *btf;
	int r = block_open(s);

	if (r < 0)
		return r;
	btf = btf__load_vmlinux_btf();
	if (btf && n_arguments(btf, "block_io_start") && n_arguments(btf, "block_io_done"))
		s->block |= BLOCK_HAS_STARTS;
	else if (btf && n_arguments(btf, "block_rq_issue") == 2)
		s->block |= BLOCK_HAS_QUEUE;
	btf__free(btf);
	s->about.bytes_type = SAMPLE_TYPE_BLOCK_IO_BYTES;
	return 0;
}

static int tell_block(struct source *s)
{
	struct block_bpf *skeleton = s->skeleton;
	union bpf_iter_link_info map = {.map.map_fd = (u32)bpf_map__fd(skeleton->maps.ios)};
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &map, .link_info_len = sizeof(map));
	struct bpf_link *link = bpf_program__attach_iter(skeleton->progs.unended, &options);
	int fd = link ? bpf_iter_create(bpf_link__fd(link)) : -1;
	int r = fd < 0 ? -errno : fd;

	bpf_link__destroy(link);
	return r;
}

static int start_block(struct source *s, struct diag *reterr_diag)
{
	struct block_bpf *skeleton = s->skeleton;
	bool starts = s->block & BLOCK_HAS_STARTS;
	const struct {
		struct bpf_program *program;
		const char *tracepoint;
	} attached[] = {
		/* From the end to the beginning of a request. */
		{skeleton->progs.on_complete, "block_rq_complete"},
		{skeleton->progs.on_merge, "block_rq_merge"},
		{skeleton->progs.on_done, starts ? "block_io_done" : NULL},
		{skeleton->progs.sample, starts ? "block_io_start" : "block_rq_insert"},
		{skeleton->progs.sample, starts ? NULL : "block_rq_issue"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(attached); i++) {
		const char *name = attached[i].tracepoint;
		struct bpf_link *link;
		int r;

		if (!name)
			continue;
		link = bpf_program__attach_raw_tracepoint(attached[i].program, name);
		if (!link)
			return diag_set(reterr_diag, -errno, "cannot follow disks (%s): %s", name,
					strerror(errno));
		r = source_attach(s, -1, -1, link);
		if (r < 0) {
			bpf_link__destroy(link);
			return r;
		}
	}
	return 0;
}

/* enum req_op (include/linux/blk_types.h); these numbers have not changed. */
static const char *operation_name(u8 operation)
{
	static const char *const names[] = {
		"read",		"write", "flush", "discard", NULL,
		"secure erase", NULL,	 NULL,	  NULL,	     "write zeroes",
	};
	const char *name = operation < ARRAY_SIZE(names) ? names[operation] : NULL;

	return name ? name : "other";
}

/* The name of a device by its number; "?": it has none, or is gone. */
static void device_name(u32 major, u32 minor, char *ret, size_t n)
{
	char path[64], target[256];
	ssize_t length;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major, minor);
	length = readlink(path, target, sizeof(target) - 1);
	target[length < 0 ? 0 : length] = '\0';
	snprintf(ret, n, "%s", length > 0 && strrchr(target, '/') ? strrchr(target, '/') + 1 : "?");
}

/* The program gathers {0, 5, the device's number (4 bytes), operation}. */
static u16 attributes(const struct source *s, const u8 *bytes, u32 n, u8 ret[FIELDS_MAX_BYTES])
{
	char number[32], name[ATTRIBUTE_MAX_TEXT + 1];
	u32 device, major, minor;
	u16 to;

	(void)s;
	if (n != 7)
		return 0;
	memcpy(&device, bytes + 2, sizeof(device));
	/* include/linux/kdev_t.h: MINORBITS is 20. */
	major = device >> 20;
	minor = device & 0xfffff;
	snprintf(number, sizeof(number), "%u:%u", major, minor);
	device_name(major, minor, name, sizeof(name));
	to = fields_add_named(ret, 0, "device", name);
	to = fields_add_named(ret, to, "device.number", number);
	return fields_add_named(ret, to, "operation", operation_name(bytes[6]));
}

const struct source_ops source_block = {
	.open = open_block,
	.load = block_load,
	.destroy = block_destroy,
	.start = start_block,
	.tell = tell_block,
	.attributes = attributes,
};
