/* SPDX-License-Identifier: Apache-2.0 */
#include "base/vocab.h"

#include "base/types.h"

static const struct vocab_entry frame_kinds[] = {
#define FRAME_KIND(id, name, suffix, help) {name, suffix, help},
#include "abi/tbl/frame_kind.tbl"
#undef FRAME_KIND
};

static const struct vocab_entry stops[] = {
#define STOP(id, text, help) {text, "", help},
#include "abi/tbl/stop.tbl"
#undef STOP
};

static const struct vocab_entry counters[] = {
#define COUNTER(id, name, unit, help) {name, unit, help},
#include "abi/tbl/counter.tbl"
#undef COUNTER
};

static const struct vocab_entry *entry(const struct vocab_entry *table, size_t n, unsigned int i)
{
	static const struct vocab_entry none = {"?", "", "?"};

	return i < n ? &table[i] : &none;
}

const struct vocab_entry *vocab_frame_kind(unsigned int kind)
{
	return entry(frame_kinds, ARRAY_SIZE(frame_kinds), kind);
}

const struct vocab_entry *vocab_stop(unsigned int stop)
{
	return entry(stops, ARRAY_SIZE(stops), stop);
}

const struct vocab_entry *vocab_counter(unsigned int counter)
{
	return entry(counters, ARRAY_SIZE(counters), counter);
}
