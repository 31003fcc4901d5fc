/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer, with Jansson as the reader. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

/* Parses `s`; fails the test unless it is one JSON value. Jansson refuses duplicate keys. */
static json_t *parse(const struct str *s)
{
	json_error_t error = {};
	json_t *j = json_loadb(s->data, s->n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);

	cr_assert(j, "%s: %s", error.text, s->data);
	return j;
}

Test(json, every_kind_of_value_is_written)
{
	_cleanup_str_ struct str out = {};
	struct json_writer w = {.out = &out};

	json_open_object(&w, NULL);
	json_put_text(&w, "text", " a \"b\" \\ \n c ");
	json_put_exact(&w, "exact", " \t\x01\"\\ ");
	json_open_array(&w, "integers");
	json_put_u64(&w, NULL, 0);
	json_put_u64(&w, NULL, ~0ULL);
	json_put_s64(&w, NULL, -1);
	json_put_s64(&w, NULL, INT64_MIN);
	json_close(&w);
	json_open_array(&w, "none");
	json_close(&w);
	json_open_array(&w, "pairs");
	for (u32 i = 0; i < 2; i++) {
		json_open_object(&w, NULL);
		json_put_bool(&w, "first", !i);
		json_put_null(&w, "no");
		json_close(&w);
	}
	json_close(&w);
	json_put_fixed(&w, "fixed", 2.0 / 3, 3);
	json_put_scaled(&w, "scaled", 1700000000123456789ULL, 6);
	json_put_scaled(&w, "small", 42, 6);
	json_close(&w);
	cr_assert_str_eq(out.data,
			 "{\"text\":\"a \\\"b\\\" \\\\   c\","
			 "\"exact\":\" \\u0009\\u0001\\\"\\\\ \","
			 "\"integers\":[0,18446744073709551615,-1,-9223372036854775808],"
			 "\"none\":[],"
			 "\"pairs\":[{\"first\":true,\"no\":null},{\"first\":false,\"no\":null}],"
			 "\"fixed\":0.667,\"scaled\":1700000000123.456789,\"small\":0.000042}");
}

Test(json, numbers_that_json_lacks_are_null)
{
	_cleanup_str_ struct str out = {};
	struct json_writer w = {.out = &out};

	json_open_array(&w, NULL);
	json_put_double(&w, NULL, NAN);
	json_put_fixed(&w, NULL, -INFINITY, 1);
	json_put_double(&w, NULL, 0.03);
	json_put_double(&w, NULL, 0.1 + 0.2);
	json_close(&w);
	cr_assert_str_eq(out.data, "[null,null,0.03,0.30000000000000004]");
}

/* Hostile text: all bytes at all places of a string. Each result parses and is one line. */
Test(json, hostile_bytes_stay_in_their_string)
{
	srand(1);
	for (u32 round = 0; round < 20000; round++) {
		_cleanup_str_ struct str out = {};
		struct json_writer w = {.out = &out};
		char text[9] = {}, key[9] = {};
		json_t *j;

		for (u32 i = 0; i < 8; i++) {
			text[i] = (char)rand();
			key[i] = (char)("\"\\{}[]:,\n\xf0\x9f\x92\xa9\xff"[rand() % 14]);
		}
		json_open_object(&w, NULL);
		json_put_text(&w, key, text);
		json_open_array(&w, "list");
		json_put_exact(&w, NULL, text);
		json_close(&w);
		json_put_u64(&w, "after", round);
		json_close(&w);
		j = parse(&out);
		cr_assert_eq(json_object_size(j), 3);
		cr_assert_eq(json_integer_value(json_object_get(j, "after")), round);
		cr_assert_eq(json_array_size(json_object_get(j, "list")), 1);
		for (size_t i = 0; i < out.n; i++)
			cr_assert((u8)out.data[i] >= 0x20);
		json_decref(j);
	}
}

Test(json, exact_text_comes_back)
{
	static const char *const texts[] = {
		"",	    " ",	"\x7f", "\xc2\x85", "\xe2\x80\xae", "\xf0\x9f\x92\xa9",
		"a\tb\r\n", "</script>"};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		_cleanup_str_ struct str out = {};
		struct json_writer w = {.out = &out};
		json_t *j;

		json_put_exact(&w, NULL, texts[i]);
		j = parse(&out);
		cr_assert_str_eq(json_string_value(j), texts[i]);
		json_decref(j);
	}
}

Test(json, a_member_needs_a_key, .signal = SIGABRT)
{
	_cleanup_str_ struct str out = {};
	struct json_writer w = {.out = &out};

	json_open_object(&w, NULL);
	json_put_u64(&w, NULL, 1);
}

Test(json, an_element_has_no_key, .signal = SIGABRT)
{
	_cleanup_str_ struct str out = {};
	struct json_writer w = {.out = &out};

	json_open_array(&w, NULL);
	json_put_u64(&w, "key", 1);
}

Test(json, there_is_one_value_outside, .signal = SIGABRT)
{
	_cleanup_str_ struct str out = {};
	struct json_writer w = {.out = &out};

	json_put_u64(&w, NULL, 1);
	json_put_u64(&w, NULL, 2);
}

Test(json, what_is_not_open_cannot_be_closed, .signal = SIGABRT)
{
	_cleanup_str_ struct str out = {};
	struct json_writer w = {.out = &out};

	json_open_array(&w, NULL);
	json_close(&w);
	json_close(&w);
}

Test(json, without_memory_the_string_has_failed)
{
	_cleanup_str_ struct str out = {.failed = true};
	struct json_writer w = {.out = &out};

	json_open_object(&w, NULL);
	json_put_text(&w, "key", "text");
	json_close(&w);
	cr_assert(out.failed);
	cr_assert_eq(out.n, 0);
}
