/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the page tables of the current process say about an address. The tables are the only place
 * that tells, on each kernel and exactly, how many pages a fault has made resident: the kernel's
 * counters (mm->rss_stat) are per CPU, change under other threads' faults, and do not change when a
 * page is copied.
 *
 * The kernel sees physical memory through a linear map, whose begin is random and no symbol of
 * which every kernel tells. pages_find_map() tries the possible begins until a walk ends at memory
 * that has the words of the process's own stack.
 */
#pragma once

#include "bpf/lib/task.h"

/*
 * A fault maps pages around the address: a file's pages that are in memory (16 of 4 KiB, aligned or
 * cut off by the mapping's begin), or a large folio.
 */
#define PAGES_WINDOW 32U
#define PAGES_ALIGN 16U

/* The entries of the last table at and around an address, or the one entry of a huge page. */
struct pages {
	__u64 address;	   /* the window's first, or the huge page's */
	__u64 entry_bytes; /* of memory that an entry maps */
	__u64 huge;	   /* the entry; 0: there is a window, or nothing */
	__u64 entries[PAGES_WINDOW];
};

/* The linear map: virtual address - physical address. */
struct linear_map {
	__u64 offset; /* 0: not found yet */
	__u32 levels; /* of page tables */
	__u32 tried;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct linear_map);
} linear_map SEC(".maps");

#define LINEAR_MAP_ALIGN (1ULL << 30) /* PUD_SIZE with pages of 4 KiB, and its least elsewhere */
#define LINEAR_MAP_TRIES (1U << 16)   /* 64 TiB of physical addresses */
#define TRIES_AT_ONCE 32

#if defined(__TARGET_ARCH_x86)

#define PAGES_MIN_LEVELS 4
#define PAGES_MAX_LEVELS 5
#define ENTRY_SPECIAL (1ULL << 9) /* the zero page, or no memory: arch/x86 _PAGE_SPECIAL */

/* _PAGE_PRESENT, or _PAGE_PROTNONE: resident, but the next access has to say from which node. */
static __always_inline bool entry_is_present(__u64 entry)
{
	return entry & 0x101;
}

static __always_inline bool entry_is_huge(__u64 entry)
{
	return entry & 0x80; /* _PAGE_PSE */
}

static __always_inline __u64 entry_address(__u64 entry)
{
	return entry & 0x000ffffffffff000ULL;
}

#else

#define PAGES_MIN_LEVELS 2
#define PAGES_MAX_LEVELS 4
#define ENTRY_SPECIAL (1ULL << 56) /* arch/arm64 PTE_SPECIAL */

static __always_inline bool entry_is_present(__u64 entry)
{
	return entry & 1; /* PTE_VALID */
}

static __always_inline bool entry_is_huge(__u64 entry)
{
	return !(entry & 2); /* a block, not a table */
}

static __always_inline __u64 entry_address(__u64 entry)
{
	return entry & 0x0000fffffffff000ULL & -(1ULL << config.page_shift);
}

#endif

static __always_inline __u64 table_entries(void)
{
	return 1ULL << (config.page_shift - 3);
}

/*
 * Walks to the last table, or to a huge page. Returns the address of the table in the linear map, 0
 * if there is none or a huge page. *ret_shift: log2 of the memory that an entry there maps;
 * *ret_entry: that of the huge page, or 0.
 */
static __always_inline __u64 pages_walk(struct mm_struct *mm, const struct linear_map *m,
					__u64 address, __u32 *ret_shift, __u64 *ret_entry)
{
	__u64 table = (__u64)BPF_CORE_READ(mm, pgd), entry;
	__u32 bits = config.page_shift - 3;
	__u32 shift = config.page_shift + bits * (m->levels - 1);

	*ret_entry = 0;
#pragma unroll
	for (int i = 0; i < PAGES_MAX_LEVELS - 1; i++) {
		if (shift == config.page_shift)
			break;
		*ret_shift = shift;
		table += 8 * (address >> (shift & 63) & (table_entries() - 1));
		if (bpf_probe_read_kernel(&entry, sizeof(entry), (void *)table) < 0 ||
		    !entry_is_present(entry))
			return 0;
		if (entry_is_huge(entry)) {
			*ret_entry = entry;
			return 0;
		}
		table = m->offset + entry_address(entry);
		shift -= bits;
	}
	*ret_shift = config.page_shift;
	return table;
}

/* Whether the linear map leads to the bytes that the process has at `address`. */
static __always_inline bool leads_to(struct mm_struct *mm, const struct linear_map *m,
				     __u64 address, const __u64 *words)
{
	__u64 there[4], entry;
	__u32 shift;
	__u64 table = pages_walk(mm, m, address, &shift, &entry);

	if (!table)
		return false;
	table += 8 * (address >> shift & (table_entries() - 1));
	if (bpf_probe_read_kernel(&entry, sizeof(entry), (void *)table) < 0 ||
	    !entry_is_present(entry))
		return false;
	table = m->offset + entry_address(entry) + (address & ((1ULL << shift) - 1));
	return bpf_probe_read_kernel(there, sizeof(there), (void *)table) == 0 &&
	       there[0] == words[0] && there[1] == words[1] && there[2] == words[2] &&
	       there[3] == words[3];
}

/* Tries some begins of the linear map; a later call tries the next ones. */
static __always_inline void pages_find_map(struct mm_struct *mm, struct linear_map *known)
{
	struct linear_map m = *known;
	__u64 pgd = (__u64)BPF_CORE_READ(mm, pgd), words[4];
	/* The stack's first words are argc and argv: random, and never paged out for long. */
	__u64 address = BPF_CORE_READ(mm, start_stack) & ~31ULL;

	if (m.tried >= LINEAR_MAP_TRIES ||
	    bpf_probe_read_user(words, sizeof(words), (void *)address) < 0 ||
	    !(words[0] | words[1] | words[2] | words[3]))
		return;
	for (__u32 i = 0; i < TRIES_AT_ONCE; i++) {
		m.offset = (pgd & -LINEAR_MAP_ALIGN) - m.tried++ * LINEAR_MAP_ALIGN;
		for (m.levels = PAGES_MIN_LEVELS; m.levels <= PAGES_MAX_LEVELS; m.levels++) {
			if (!leads_to(mm, &m, address, words))
				continue;
			*known = m;
			return;
		}
	}
	known->tried = m.tried;
}

static __always_inline struct linear_map *pages_map(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&linear_map, &zero);
}

/* Reads what there is at and around an address. Entries that cannot be read are 0. */
static __always_inline void pages_read(struct mm_struct *mm, const struct linear_map *m,
				       __u64 address, struct pages *ret)
{
	__u32 shift = config.page_shift;
	__u64 table = pages_walk(mm, m, address, &shift, &ret->huge);
	__u64 index = address >> shift & (table_entries() - 1);

	ret->entry_bytes = 1ULL << (shift & 63);
	ret->address = address & -ret->entry_bytes;
	if (!table) {
		__builtin_memset(ret->entries, 0, sizeof(ret->entries));
		return;
	}
	index &= ~(__u64)(PAGES_ALIGN - 1);
	/* The table ends at a multiple of the alignment. */
	if (index > table_entries() - PAGES_WINDOW)
		index = table_entries() - PAGES_WINDOW;
	ret->address = (address & -(table_entries() << shift)) + (index << shift);
	if (bpf_probe_read_kernel(ret->entries, sizeof(ret->entries), (void *)(table + 8 * index)) <
	    0)
		__builtin_memset(ret->entries, 0, sizeof(ret->entries));
}

#define NO_MEMORY (~0ULL)

/* The physical address of what an entry maps, or NO_MEMORY. */
static __always_inline __u64 entry_memory(__u64 entry, __u64 entry_bytes)
{
	if (!entry_is_present(entry) || entry & ENTRY_SPECIAL)
		return NO_MEMORY;
	return entry_address(entry) & -entry_bytes;
}

/*
 * The entries whose memory has become resident, or was copied, between two readings: bits of
 * now->entries, or bit 0 for now->huge.
 */
static __always_inline __u32 pages_new(const struct pages *before, const struct pages *now)
{
	__u64 huge = entry_memory(before->huge, before->entry_bytes), page, old;
	__u32 bits = 0;

	if (now->huge) {
		page = entry_memory(now->huge, now->entry_bytes);
		return page != NO_MEMORY && page != huge;
	}
	for (__u64 i = 0; i < PAGES_WINDOW; i++) {
		page = entry_memory(now->entries[i], now->entry_bytes);
		if (before->entry_bytes == now->entry_bytes)
			old = entry_memory(before->entries[i], now->entry_bytes);
		else if (huge != NO_MEMORY) /* it is split now */
			old = huge + now->address + i * now->entry_bytes - before->address;
		else
			old = NO_MEMORY;
		bits |= (__u32)(page != NO_MEMORY && page != old) << i;
	}
	return bits;
}
_Static_assert(PAGES_WINDOW == 32, "bits of pages_new()");

/* The bytes of memory that have become resident, or were copied, between two readings. */
static __always_inline __u64 pages_gained(const struct pages *before, const struct pages *now)
{
	return (__u64)__builtin_popcount(pages_new(before, now)) * now->entry_bytes;
}
