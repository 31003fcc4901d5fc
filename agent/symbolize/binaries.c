/* SPDX-License-Identifier: Apache-2.0 */
/* Caches binaries whose names were needed, and the sources of these names. */
#include <endian.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/symbolize/internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

/* The names of a binary are kept for this many batches without the binary. */
#define KEEP_BATCHES 12
#define HTLHASH_BYTES 4096
/*
 * The sources of names (symbol tables, DWARF) are kept as long as batches have new addresses:
 * reading and sorting them for every batch took most of the agent's CPU time. All of them together
 * are bounded; libc's debug information alone is 8 MiB.
 */
#define KEEP_SOURCES_BATCHES 6
#define KEEP_SOURCES_BYTES (8ULL << 20)
/*
 * How long names are written to the disk cache at the end, while the user waits. It takes a fifth
 * of a second of CPU, which on a machine with ten times more threads than CPUs took ten seconds.
 */
#define SAVE_MAX_NS 1000000000ULL

static void named_binary_free(struct named_binary *b)
{
	symbols_destroy(b->symbols);
	elf_file_destroy(b->elf);
	free(b);
}

void binaries_destroy(struct symbolizer *s)
{
	u64 until = clock_ns(CLOCK_MONOTONIC) + SAVE_MAX_NS;

	map_foreach (&s->binaries, slot) {
		struct named_binary *b = (struct named_binary *)slot->value;

		if (b->symbols && clock_ns(CLOCK_MONOTONIC) > until)
			symbols_skip_cache(b->symbols);
		named_binary_free(b);
	}
	map_deinit(&s->binaries);
}

/*
 * Whether the server can name the frames: by the build-id of a file. Memory without a file gets
 * names here.
 */
static bool is_left(const struct symbolizer *s, const struct procman_binary *b)
{
	return s->options.leave_files && b->elf->build_id_n >= 2 && b->path[0] == '/';
}

static void open_symbols(struct symbolizer *s, const struct procman_binary *b,
			 struct named_binary *n)
{
	struct symbols_options o = {
		.inlines = s->options.inlines,
		.lines = true,
		.cache_dir = s->cache_dir,
		.root_fd = -1,
		.path = b->path,
		.debuginfod_urls = s->debuginfod_urls,
		.max_section = s->options.max_section,
	};
	int r;

	if (!b->elf || is_left(s, b) || is_in_a_hurry(s))
		return;
	r = elf_file_open_again(b->elf, &n->elf);
	if (r == 0)
		r = symbols_open(n->elf, &o, &n->symbols);
	if (r < 0)
		log_debug("symbols of %s: %s", b->path, strerror(-r));
}

struct named_binary *binaries_open(struct symbolizer *s, const struct procman_binary *b)
{
	u64 *known = map_get(&s->binaries, b->file_id);
	struct named_binary *n = known ? (struct named_binary *)*known : NULL;

	if (n && n->first_seen_ns != b->first_seen_ns) {
		map_del(&s->binaries, b->file_id, NULL);
		named_binary_free(take_ptr(n));
	}
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (!n || map_put(&s->binaries, b->file_id, (u64)n) < 0) {
			free(n);
			return NULL;
		}
		n->file_id = b->file_id;
		n->first_seen_ns = b->first_seen_ns;
		open_symbols(s, b, n);
		n->mapping = PROFILE_NONE;
	}
	n->unseen = 0;
	return n;
}

/*
 * Reads the input of an htlhash: the first and last bytes of the file, and its size. Returns its
 * length, or 0.
 */
static size_t read_ends(const struct elf_file *elf, u8 bytes[2 * HTLHASH_BYTES + 8])
{
	u64 size = elf->size, n = MIN(size, (u64)HTLHASH_BYTES), n_last = htobe64(size);

	if (elf->fd < 0 || pread(elf->fd, bytes, n, 0) != (ssize_t)n ||
	    pread(elf->fd, bytes + n, n, (off_t)(size - n)) != (ssize_t)n)
		return 0;
	memcpy(bytes + 2 * n, &n_last, 8);
	return 2 * n + 8;
}

/*
 * Makes an id for a file without a build-id, because receivers require an id. If the file cannot be
 * read (its process has exited), its path is hashed, which matches no file's id.
 */
static void put_htlhash(const struct procman_binary *b, char *to)
{
	u8 bytes[2 * HTLHASH_BYTES + 8], hash[32];
	size_t n = b->elf ? read_ends(b->elf, bytes) : 0;

	if (gnutls_hash_fast(GNUTLS_DIG_SHA256, n ? (const void *)bytes : b->path,
			     n ? n : strlen(b->path), hash) == 0)
		text_hex(hash, sizeof(hash) / 2, stpcpy(to, PROFILE_HTLHASH));
}

void binary_id(const struct procman_binary *b, char ret[ELF_MAX_BUILD_ID * 2 + 1])
{
	ret[0] = '\0';
	if (b->elf && b->elf->build_id_n)
		text_hex(b->elf->build_id, b->elf->build_id_n, ret);
	else if (b->path[0] == '/')
		put_htlhash(b, ret);
}

/* ---- reading ---- */

static u64 sources_bytes(const struct named_binary *n)
{
	return n->symbols ? symbols_memory(n->symbols) : 0;
}

/* Whether the sources of a are dropped before those of b: not read for longer, or larger. */
static bool goes_before(const struct named_binary *a, const struct named_binary *b)
{
	if (!sources_bytes(a) != !sources_bytes(b))
		return sources_bytes(a);
	if (a->unread != b->unread)
		return a->unread > b->unread;
	return sources_bytes(a) > sources_bytes(b);
}

/* Bounds the sources of all binaries together. */
static void bound_sources(struct symbolizer *s, u64 max_bytes)
{
	u64 total = 0;

	map_foreach (&s->binaries, slot)
		total += sources_bytes((struct named_binary *)slot->value);
	while (total > max_bytes) {
		struct named_binary *first = NULL;

		map_foreach (&s->binaries, slot) {
			struct named_binary *n = (struct named_binary *)slot->value;

			if (!first || goes_before(n, first))
				first = n;
		}
		total -= sources_bytes(first);
		symbols_trim(first->symbols);
	}
}

bool symbolizer_find_room(struct symbolizer *s, u64 bytes)
{
	if (budget_begin(s->options.budget, bytes))
		return true;
	bound_sources(s, 0);
	return budget_begin(s->options.budget, bytes);
}

static void read_names(struct symbolizer *s, struct named_binary *named, const u64 *list, size_t n)
{
	struct symbol_chain chain;
	u64 room = 0;

	for (size_t i = 0; i < n && !is_in_a_hurry(s); i++) {
		u64 svma = list[i] & WORD_SVMA_MASK;

		if ((i && list[i] == list[i - 1]) ||
		    symbols_recall(named->symbols, svma, &chain) != -EAGAIN)
			continue;
		if (!room) {
			room = symbols_needs(named->symbols) + 1;
			named->left_out = !symbolizer_find_room(s, room);
		}
		if (named->left_out) {
			s->stats.left_out++;
			symbols_trim(named->symbols);
			return;
		}
		(void)symbols_lookup(named->symbols, svma, &chain);
	}
	if (room)
		budget_end(s->options.budget, room);
}

void binaries_read(struct symbolizer *s, struct named_binary *b, const u64 *frames, size_t n)
{
	u64 bytes = s->options.max_section ? s->options.max_section : KEEP_SOURCES_BYTES;

	if (b->symbols)
		read_names(s, b, frames, n);
	bound_sources(s, bytes);
}

int binary_name(struct symbolizer *s, struct named_binary *b, u64 svma, struct symbol_chain *ret)
{
	if (!b->symbols)
		return -ENOENT;
	return b->left_out || is_in_a_hurry(s) ? symbols_recall(b->symbols, svma, ret)
					       : symbols_lookup(b->symbols, svma, ret);
}

/* ---- caching ---- */

void binaries_begin(struct symbolizer *s, const struct pipeline_batch *batch)
{
	map_foreach (&s->binaries, slot) {
		struct named_binary *b = (struct named_binary *)slot->value;

		b->left_out = false;
		if (map_get(&batch->binaries, b->file_id) || ++b->unseen < KEEP_BATCHES)
			continue;
		map_del(&s->binaries, b->file_id, NULL);
		named_binary_free(b);
	}
}

void binaries_forget_mappings(struct symbolizer *s)
{
	map_foreach (&s->binaries, slot)
		((struct named_binary *)slot->value)->mapping = PROFILE_NONE;
}

/* Keeps the answers. Of their sources, keeps only those that are likely to be needed soon. */
void binaries_end(struct symbolizer *s)
{
	map_foreach (&s->binaries, slot) {
		struct named_binary *n = (struct named_binary *)slot->value;
		u64 n_read = n->symbols ? symbols_n_read(n->symbols) : 0;

		n->unread = n_read == n->n_read ? n->unread + 1 : 0;
		n->n_read = n_read;
		if (n->symbols && n->unread >= KEEP_SOURCES_BATCHES)
			symbols_trim(n->symbols);
	}
	bound_sources(s, s->options.max_section ? s->options.max_section / 4 : KEEP_SOURCES_BYTES);
}

/*
 * Drops binaries not seen in `unseen` batches. Returns whether there were any. The disk cache keeps
 * their answers.
 */
static bool drop_binaries(struct symbolizer *s, u32 unseen)
{
	size_t before = s->binaries.n;

	map_foreach (&s->binaries, slot) {
		struct named_binary *n = (struct named_binary *)slot->value;

		if (n->unseen < unseen)
			continue;
		map_del(&s->binaries, n->file_id, NULL);
		named_binary_free(n);
	}
	return s->binaries.n < before;
}

bool symbolizer_shed(struct symbolizer *s)
{
	u64 sources = 0;

	map_foreach (&s->binaries, slot) {
		struct named_binary *n = (struct named_binary *)slot->value;

		sources += sources_bytes(n);
		if (n->symbols)
			symbols_trim(n->symbols);
	}
	return sources || drop_binaries(s, 1) || drop_binaries(s, 0);
}

void binaries_count_memory(struct symbolizer *s)
{
	u64 names = 0, sources = 0;

	map_foreach (&s->binaries, slot) {
		const struct named_binary *n = (const struct named_binary *)slot->value;

		names += sizeof(*n) + (n->symbols ? symbols_answers_memory(n->symbols) : 0);
		sources += sources_bytes(n);
	}
	s->stats.names_bytes = names;
	s->stats.sources_bytes = sources;
	s->stats.kernel_bytes = s->kernel ? kernel_names_memory(s->kernel) : 0;
}
