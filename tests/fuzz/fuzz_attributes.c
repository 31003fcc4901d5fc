/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of a thread or an event. The first byte chooses the form, the second says how many
 * attribute names of the process are known, the rest is the record's attributes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/context/internal.h"
#include "agent/sampler/fields.h"
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *s)
{
	u32 c;

	for (size_t n = strlen(s), i = 0, step; i < n; i += step) {
		step = text_decode(s + i, n - i, &c);
		if (!step || c < ' ')
			abort();
	}
}

static const struct source_field fields[] = {
	{"ret", true, false, {8, 4, FIELD_NUMBER}},
	{"at", false, true, {16, 8, FIELD_NUMBER}},
	{"filename", false, false, {24, 8, FIELD_TEXT_OF_USER}},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct context_label labels[CONTEXT_MAX_ATTRIBUTES];
	struct attribute_bounds bounds = {};
	struct attribute_share share = {.said = true};
	struct attribute_names names = {};
	struct record_attributes head = {};
	struct str texts = {};
	u8 named[FIELDS_MAX_BYTES];
	bool partial;
	u32 n, n_names;

	if (size < 2)
		return 0;
	n_names = data[1];
	head.form = data[0] % 3;
	head.n = (u16)MIN(size - 2, (size_t)ATTRIBUTES_MAX_BYTES);
	data += 2;
	if (head.form == ATTRIBUTES_FIELDS) {
		head.form = ATTRIBUTES_NAMED;
		head.n = fields_to_named(fields, 3, data, head.n, named);
		data = named;
	}
	for (u32 i = 0; i < n_names; i++)
		(void)attribute_names_add(&names, i % 3 ? "a.name" : i % 2 ? "thread.id" : "");
	attribute_bounds_begin(&bounds, 1);
	n = attributes_decode(&head, data, &names, &bounds, &share, &texts, labels, &partial);
	if (n > CONTEXT_MAX_ATTRIBUTES)
		abort();
	for (u32 i = 0; i < n; i++) {
		if (!*labels[i].name || !*labels[i].value || attribute_is_taken(labels[i].name))
			abort();
		check_text(labels[i].name);
		check_text(labels[i].value);
	}
	(void)attributes_have_names(&head, data, &names);
	str_deinit(&texts);
	attribute_names_deinit(&names);
	attribute_bounds_deinit(&bounds);
	return 0;
}
