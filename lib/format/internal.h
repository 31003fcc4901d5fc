/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lib/format share with each other. */
#pragma once

#include "base/str.h"
#include "base/text.h"
#include "compress/compress.h"
#include "format/format.h"
#include "profile/writer.h"

/* ---- what writers have in common (writer.c) ---- */

/* The tree that a writer shows: of p, or the diff against o->base, normalised if asked for. */
int profile_tree_for_writer(const struct profile *p, const struct profile_write_options *o,
			    struct profile_tree **ret);

/* ---- what readers have in common (reader.c) ---- */

/*
 * A frame known by its text only, as folded and speedscope have it: `_[k]`, `_[i]`, `_[j]` become
 * kinds, `libfoo.so+0x12` an address in a file, `[unknown]` and "" no function, `[truncated: ...]`
 * a note, `[lock]` a wait.
 */
int profile_add_frame_text(struct profile *p, const char *text, size_t n, u32 *ret_id);
/*
 * Whether the text is `file+0x12ab`, exactly as profile_frame_name() writes it: anything else
 * (upper case, leading zeros, more than 64 bits) is a name, so that what is written again is the
 * same text.
 */
bool profile_split_address(const char *text, size_t n, size_t *ret_path_n, u64 *ret_address);
/* The first character behind blanks, of which there may be some; 0: there is none. */
char profile_first_char(const u8 *data, size_t n);
int profile_add_comm(struct profile *p, const char *comm, size_t n, u32 *ret_thread);
/* The length of the prefix of a pod's or container's name ("[Pod]"), if it has one; else 0. */
size_t profile_root_prefix(const char *s, size_t n);
/*
 * The names above the frames, with semicolons between them: "[Pod]shop-1;[Con]shop;[7]java", all
 * of it optional but "java".
 */
int profile_add_head_text(struct profile *p, const char *s, size_t n, u32 *ret_thread);

/* Cuts the next line off, without its end ("\n" or "\r\n"); false when there is none. */
bool profile_next_line(const char **pos, const char *end, const char **ret_s, size_t *ret_n);

/* A frame known by its function's name and place in the source. Texts need no NUL at their end. */
struct profile_source {
	const char *name, *file; /* no name: an unknown function */
	size_t name_n, file_n;
	u32 start_line, line; /* 0 = not known */
	u8 kind;
};
int profile_add_source_frame(struct profile *p, const struct profile_source *s, u32 *ret_id);

/*
 * Stacks that share their prefixes may be huge when they are written out, and small files may have
 * many: the frames of all stacks together that a reader makes of a file of n bytes.
 */
static inline u64 profile_max_frames(size_t n)
{
	return (1u << 20) + 16 * (u64)n;
}

/* ---- formats: what the table in format.c points to ---- */

int folded_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int folded_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		 struct diag *reterr_diag);
int folded_probe(const u8 *data, size_t n);
int pprof_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int pprof_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		struct diag *reterr_diag);
int pprof_probe(const u8 *data, size_t n);
int svg_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
	      struct diag *reterr_diag);
int speedscope_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int speedscope_write(const struct profile *p, const struct profile_write_options *o,
		     struct str *out, struct diag *reterr_diag);
int speedscope_probe(const u8 *data, size_t n);
int firefox_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int firefox_probe(const u8 *data, size_t n);
int firefox_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		  struct diag *reterr_diag);
int perf_script_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int perf_script_probe(const u8 *data, size_t n);
int chrome_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int chrome_probe(const u8 *data, size_t n);
int gperftools_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int gperftools_probe(const u8 *data, size_t n);
int austin_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int austin_probe(const u8 *data, size_t n);
int perf_data_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int perf_data_probe(const u8 *data, size_t n);
int jfr_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int jfr_probe(const u8 *data, size_t n);
int html_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
/* The same of the page's data alone (doc/format/html.md), unpacked. */
int html_read_body(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int html_probe(const u8 *data, size_t n);
int html_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
	       struct diag *reterr_diag);
