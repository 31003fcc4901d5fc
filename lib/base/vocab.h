/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the vocabularies in abi/tbl; an id outside its table reads "?". */
#pragma once

#include "abi/vocab.h"

struct vocab_entry {
	const char *name;
	const char *unit; /* counters: the unit; frame kinds: the folded suffix; stops: "" */
	const char *help;
};

const struct vocab_entry *vocab_frame_kind(unsigned int kind);
const struct vocab_entry *vocab_stop(unsigned int stop);
const struct vocab_entry *vocab_counter(unsigned int counter);
