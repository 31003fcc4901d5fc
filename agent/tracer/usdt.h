/* SPDX-License-Identifier: Apache-2.0 */
/*
 * USDT probes of a program or library: the notes of section .note.stapsdt, which <sys/sdt.h> makes
 * ("UserSpaceProbeImplementation" of SystemTap's wiki describes them). All bytes are foreign.
 */
#pragma once

#include "base/buf.h"
#include "base/vec.h"
#include "trace/trace.h"

#define USDT_MAX_PROBES 65536
#define USDT_MAX_ARGUMENTS 12

struct usdt_probe {
	const char *provider, *name;
	const char *arguments; /* "-4@%edi 8@-16(%rbp)" */
	u64 svma;
	u64 semaphore; /* svma; 0: none */
};
typedef vec(struct usdt_probe) usdt_probes;

/*
 * Appends the probes of a note section; texts are borrowed from it. `base` is the svma of section
 * .stapsdt.base, 0 if there is none: what a prelinker has moved since is added to the addresses.
 * -EINVAL: the section is damaged; what came before is in the list. -ENOMEM.
 */
int usdt_parse(struct buf notes, u64 base, usdt_probes *ret);

/* What an operand's symbol is: 0, or -ENOENT. */
typedef int usdt_symbol_fn(void *arg, const char *name, u64 *ret_svma);

/* The `kind` of an argument that cannot be read: a vector register, an unknown operand. */
#define USDT_UNREADABLE 255

/*
 * The arguments of a probe, at most USDT_MAX_ARGUMENTS. `machine` is EM_X86_64 or EM_AARCH64.
 * Returns their number.
 */
u32 usdt_arguments(const struct usdt_probe *p, u16 machine, usdt_symbol_fn *symbol, void *arg,
		   struct trace_usdt_argument ret[USDT_MAX_ARGUMENTS]);
