/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lib/profile share with each other, and with other readers and writers. */
#pragma once

#include "base/str.h"
#include "base/text.h"
#include "compress/compress.h"
#include "profile/profile.h"

/* The last part of a path; "[vdso]" and the like as they are. */
const char *profile_basename(const char *path);

/* ---- samples without their times: one group per thread, stack and link (profile.c) ---- */

struct profile_group {
	u32 thread; /* or PROFILE_NONE */
	u32 stack;
	u32 link; /* 0 = none, or links are not kept apart */
};

struct profile_groups {
	vec(struct profile_group) group;
	vec(s64) value; /* of group g and type t: value.data[g * n_types + t] */
	u32 n_types;
};

int profile_groups_build(const struct profile *p, bool by_link, struct profile_groups *ret);
void profile_groups_deinit(struct profile_groups *g);
#define _cleanup_groups_ __attribute__((cleanup(profile_groups_deinit)))

/*
 * By thread id: the first that is the same but for its attributes; to be freed. For formats that
 * show each thread once.
 */
int profile_same_threads(const struct profile *p, u32 **ret);

/* ---- the levels above the frames (tree.c) ---- */

/* The names of process and thread of a sample as the options want them. */
struct profile_head {
	struct str name[2]; /* owned */
	u16 level[2];	    /* enum profile_level */
	size_t n;	    /* 0, 1 or 2 */
};
void profile_head_set(struct profile_head *h, const struct profile *p, u32 thread,
		      const struct profile_tree_options *o);
void profile_head_deinit(struct profile_head *h);
#define _cleanup_head_ __attribute__((cleanup(profile_head_deinit)))

/* The suffix of folded text: _[k] always, _[i] and _[j] with `annotate`, else "". */
const char *profile_frame_suffix(const struct profile_frame *f, bool annotate);
/* Whether the options leave this frame out. */
bool profile_frame_dropped(const struct profile_frame *f, const struct profile_tree_options *o);

/* The tree that a writer shows: of p, or the diff against o->base, normalised if asked for. */
int profile_tree_for_writer(const struct profile *p, const struct profile_write_options *o,
			    struct profile_tree **ret);

/* ---- what readers have in common (reader.c) ---- */

/* Fills p->quality from the samples, for formats that do not carry it. */
void profile_derive_quality(struct profile *p);
/*
 * A frame known by its text only, as folded and speedscope have it: `_[k]`, `_[i]`, `_[j]` become
 * kinds, `libfoo.so+0x12` an address in a file, `[unknown]` and "" no function, `[truncated: ...]`
 * a note.
 */
int profile_add_frame_text(struct profile *p, const char *text, size_t n, u32 *ret_id);
int profile_add_comm(struct profile *p, const char *comm, size_t n, u32 *ret_thread);

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
int firefox_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
		  struct diag *reterr_diag);
int perf_script_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int perf_script_probe(const u8 *data, size_t n);
int jfr_read(const u8 *data, size_t n, struct profile **ret, struct diag *reterr_diag);
int jfr_probe(const u8 *data, size_t n);
int html_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
	       struct diag *reterr_diag);
