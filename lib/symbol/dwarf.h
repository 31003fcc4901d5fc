/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads DWARF 4 and 5: the function that an address is in, the functions inlined there, and lines.
 *
 * libdw is not used: version 0.188 opens split files by the paths that a file names, in our mount
 * namespace and with mmap, does not support .dwp, and aborts on some damage. Here every byte comes
 * from elf_file_section() (pread, bounded), files are opened by the caller's function only, and
 * each query has a budget of steps, so that damage ends in a missing answer.
 * doc/design/0004-dwarf-reader.md has the measurements.
 *
 *	dwarf          one program: the file with .debug_info, its dwz file, its .dwo or .dwp files
 *	└ dw_file      the sections of one of these files
 *	  └ dw_unit    a compile unit, its functions and lines; read when an address falls into it.
 *	               Over the budget the least recently used units are dropped
 *
 * Offsets of DIEs are offsets in .debug_info of their file. One thread at a time may use a dwarf.
 */
#pragma once

#include "base/buf.h"
#include "base/map.h"
#include "base/types.h"
#include "base/vec.h"
#include "elf/elf.h"

#define DW_MAX_CHAIN 64

enum dw_sec {
	DW_INFO,
	DW_ABBREV,
	DW_STR,
	DW_LINE,
	DW_LINE_STR,
	DW_RANGES,
	DW_RNGLISTS,
	DW_ADDR,
	DW_STR_OFFSETS,
	DW_ARANGES,
	DW_CU_INDEX,
	DW_SEC_N
};

/* The attributes of a DIE that are read. */
enum dw_slot {
	DW_A_SIBLING,
	DW_A_NAME,
	DW_A_LINKAGE_NAME,
	DW_A_LOW_PC,
	DW_A_HIGH_PC,
	DW_A_RANGES,
	DW_A_ORIGIN,
	DW_A_SPECIFICATION,
	DW_A_DECL_LINE,
	DW_A_CALL_FILE,
	DW_A_CALL_LINE,
	DW_A_CALL_COLUMN,
	DW_A_STMT_LIST,
	DW_A_COMP_DIR,
	DW_A_LANGUAGE,
	DW_A_DWO_NAME,
	DW_A_DWO_ID,
	DW_A_STR_OFFSETS_BASE,
	DW_A_ADDR_BASE,
	DW_A_RNGLISTS_BASE,
	DW_A_GNU_RANGES_BASE,
	/* Those of types, which are read if dwarf.with_types is set. */
	DW_A_TYPE,
	DW_A_BYTE_SIZE,
	DW_A_ENCODING,
	DW_A_MEMBER_LOCATION,
	DW_A_BIT_SIZE,
	DW_A_DATA_BIT_OFFSET,
	DW_A_UPPER_BOUND,
	DW_A_COUNT,
	DW_A_CONST_VALUE,
	DW_A_DECLARATION,
	DW_A_EXTERNAL,
	DW_A_VARIABLE_PARAMETER,
	DW_A_CALLING_CONVENTION,
	DW_A_N,
	DW_A_NONE = DW_A_N
};

struct dw_value {
	u64 u; /* a constant, address, index or offset, by the form; references: DIE offset */
	u16 form;
};

struct dw_die {
	u64 offset;
	u64 next; /* the next DIE in the file: the first child if the DIE has children */
	u64 has;  /* bit per dw_slot */
	u16 tag;  /* 0 = the end of a list of children */
	bool children;
	struct dw_value v[DW_A_N]; /* valid if its bit in `has` is set */
};

static inline bool dw_has(const struct dw_die *d, enum dw_slot slot)
{
	return d->has >> slot & 1;
}

struct dw_abbrevs;
struct dw_lines;
struct dwarf;
struct dw_file;

struct dw_func {
	u64 lo;
	u64 hi;
	u64 die;
};

struct dw_unit {
	struct dw_file *file;
	struct dw_unit *skeleton; /* of a split unit, else NULL */
	struct dw_unit *split;	  /* owned; of a skeleton, once opened */
	bool split_tried;
	u64 offset, end, dies; /* in .debug_info */
	u8 version;
	u8 offset_size;
	u16 language;
	const struct dw_abbrevs *abbrevs; /* owned by the file */
	u64 base[DW_SEC_N];		  /* in a .dwp: where the unit's part of a section is */
	u64 str_offsets_base, addr_base, rnglists_base, ranges_base;
	u64 low_pc;
	u64 stmt_list; /* ~0 = none */
	u64 dwo_id;
	const char *comp_dir, *name, *dwo_name; /* borrowed from the sections, or NULL */
	struct dw_die root;
	/* Caches, dropped by dw_unit_forget(). */
	struct dw_func *funcs; /* owned, sorted by lo */
	u64 *funcs_max_hi;     /* owned; the largest hi up to and including each */
	size_t n_funcs;
	bool funcs_read;
	struct dw_lines *lines; /* owned */
	bool lines_read;
	size_t cache_bytes;
	u64 used; /* clock of the last use */
};

struct dw_unit_slot {
	u64 offset, end;
	struct dw_unit *unit; /* owned; NULL until it is first needed */
};

struct dw_file {
	struct dwarf *dwarf;
	struct elf_file *elf; /* owned if own_elf */
	bool own_elf;
	bool dwo; /* section names end in .dwo */
	struct buf sec[DW_SEC_N];
	bool sec_read[DW_SEC_N];
	struct map abbrevs; /* key → struct dw_abbrevs * (owned) */
	vec(struct dw_unit_slot) units;
	bool units_read;
	u64 dwo_name_hash; /* of a .dwo file: hash of the name that it was opened by */
};

/*
 * Provided by the caller: finds the files that a file names, and checks that they are the right
 * ones.
 */
struct dwarf_host {
	void *arg;
	/* The dwz file of `elf`. */
	int (*open_alt)(void *arg, struct elf_file *elf, struct elf_file **ret);
	/* The .dwp next to the binary. */
	int (*open_dwp)(void *arg, struct elf_file **ret);
	int (*open_dwo)(void *arg, const char *comp_dir, const char *name, struct elf_file **ret);
	/* Whether an address is in executable code. */
	bool (*is_code)(void *arg, u64 svma);
};

struct dwarf_frame {
	const char *linkage_name; /* borrowed until dwarf_close(), or NULL */
	const char *name;	  /* with its scopes; borrowed until the next lookup, or NULL */
	const char *file;	  /* borrowed until the next lookup, or NULL */
	u32 line;
	u32 column;
	u32 start_line;
	u64 low; /* where the function's code begins; outermost frame only */
	bool inlined;
	bool plain_c; /* the language has no scopes or mangling */
};

struct dwarf_chain {
	struct dwarf_frame frames[DW_MAX_CHAIN]; /* innermost first */
	u32 n;
	bool incomplete; /* a file with more information was not found */
};

/* `elf` is borrowed until dwarf_close(). -ENOENT when it has no .debug_info. */
int dwarf_open(struct elf_file *elf, const struct dwarf_host *host, struct dwarf **ret);
void dwarf_close(struct dwarf *d);
/*
 * Returns the functions at an address; -ENOENT: no unit contains it. A unit with lines but without
 * a function gives one frame without a name. Without `inlines` only the outermost frame is
 * returned, with the line of the address; without `lines` no lines are read.
 */
int dwarf_lookup(struct dwarf *d, u64 svma, bool inlines, bool lines, struct dwarf_chain *ret);
/* Bytes of the caches that grow with use, not counting sections. */
size_t dwarf_memory(const struct dwarf *d);

/* ---- shared by the dwarf_*.c files ---- */

struct dw_cu_range {
	u64 lo, hi, max_hi;
	u32 unit; /* index in main.units */
};

struct dwarf {
	struct dw_file main;
	struct dw_file *alt; /* owned */
	bool alt_tried;
	struct dw_file *dwp; /* owned */
	bool dwp_tried;
	vec(struct dw_file *) dwos; /* owned */
	struct dwarf_host host;
	bool with_types; /* set before anything is read */
	vec(struct dw_cu_range) index;
	bool indexed;
	u64 budget; /* steps left for this query */
	u64 clock;
	size_t cache_bytes;
	char *scratch; /* owned; names and paths of the last answer */
	size_t scratch_n, scratch_cap;
};

/* Takes one step from the query's budget. False: the budget is used up. */
static inline bool dw_step(struct dwarf *d)
{
	if (!d->budget)
		return false;
	d->budget--;
	return true;
}

/* dwarf_die.c */
struct buf dw_section(struct dw_file *f, enum dw_sec sec);
/* Returns the section from base + offset on; empty if that is outside the section. */
struct buf dw_section_at(struct dw_file *f, enum dw_sec sec, u64 base, u64 offset);
/* Tells the program's file of damage at an offset of a section of `f`. */
void dw_damaged(struct dw_file *f, enum dw_sec sec, u64 offset, const char *text);
/* Sets u->abbrevs to the table at an offset of .debug_abbrev. */
int dw_abbrevs_get(struct dw_unit *u, u64 offset);
void dw_abbrevs_free_all(struct dw_file *f);
/* Reads an attribute of a form, from `b`. False: damaged, or an unknown form. */
bool dw_form_read(struct dw_unit *u, struct buf *b, u16 form, s64 implicit, struct dw_value *ret);
/* Reads the DIE at an offset. False: damaged, or outside of the unit. */
bool dw_die_read(struct dw_unit *u, u64 offset, struct dw_die *ret);
/* The text of a string attribute, borrowed from its section; NULL: there is none. */
const char *dw_string(struct dw_unit *u, const struct dw_value *v);
/* The address of an attribute, if it has the form of one. */
bool dw_address(struct dw_unit *u, const struct dw_value *v, u64 *ret);
/* Returns the unit and offset of the DIE that a reference names; NULL: the reference is invalid. */
struct dw_unit *dw_follow(struct dw_unit *u, const struct dw_value *v, u64 *ret_offset);

/* dwarf_unit.c */
int dw_units_read(struct dw_file *f);
/* The unit by its index, read on first use; NULL: it cannot be read. */
struct dw_unit *dw_unit_get(struct dw_file *f, size_t index);
/* The unit that contains a DIE's offset; NULL: there is none. */
struct dw_unit *dw_unit_of_die(struct dw_file *f, u64 offset);
/* The split unit of a skeleton; other units return themselves. */
struct dw_unit *dw_unit_full(struct dw_unit *u);
/* Drops the caches of a unit. */
void dw_unit_forget(struct dw_unit *u);
void dw_file_deinit(struct dw_file *f);
/* The dwz file; NULL: there is none, or it was not found. */
struct dw_file *dw_alt(struct dwarf *d);

/* dwarf_range.c */
typedef int dw_range_fn(void *arg, u64 lo, u64 hi);
/* Calls fn for each range of the DIE; a value other than 0 from fn ends it and is returned. */
int dw_ranges(struct dw_unit *u, const struct dw_die *d, dw_range_fn *fn, void *arg);
/* Whether pc is in a range of the DIE. */
bool dw_covers(struct dw_unit *u, const struct dw_die *d, u64 pc);

/* dwarf_line.c */
struct dw_line {
	u32 file;
	u32 line;
	u32 column;
};
/* Finds the line of pc. False: the unit's table has none. */
bool dw_line_find(struct dw_unit *u, u64 pc, struct dw_line *ret);
/* The path of a file of the unit's line table, in the scratch; NULL: there is no such file. */
const char *dw_file_path(struct dw_unit *u, u32 file);
void dw_lines_free(struct dw_lines *l);
/*
 * Appends the addresses at which a statement of a line begins. `file`: the end of a path. *ret_next
 * becomes the smallest line behind `line` that has code, if it is smaller. -E2BIG: there are too
 * many.
 */
#define DW_MAX_PLACES 65536
typedef vec(u64) dw_places;
int dw_line_places(struct dw_unit *u, const char *file, u32 line, dw_places *ret, u32 *ret_next);

/* dwarf_name.c */
void dw_name(struct dw_unit *u, const struct dw_die *die, struct dwarf_frame *frame);

/* dwarf.c */
/* The DIE of the function that begins at svma, and its unit. -ENOENT, -ENOMEM. */
int dwarf_function(struct dwarf *d, u64 svma, struct dw_unit **ret_unit, struct dw_die *ret);
/* Moves *offset behind the children of a DIE. */
bool dw_skip_children(struct dw_unit *u, const struct dw_die *d, u64 *offset);
/* Memory that lives until the next lookup. NULL: out of memory. */
char *dw_scratch(struct dwarf *d, size_t n);
