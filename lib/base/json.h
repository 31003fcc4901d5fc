/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends JSON (RFC 8259) to a string value by value. Jansson, which reads our JSON, writes only
 * trees of values that are in memory as a whole, and a flame graph has a million numbers.
 *
 *	struct json_writer w = {.out = out};
 *
 *	json_open_object(&w, NULL);
 *	json_put_text(&w, "name", name);
 *	json_open_array(&w, "points");
 *	json_put_u64(&w, NULL, 1);
 *	json_close(&w);
 *	json_close(&w);
 *
 * The writer puts commas, quotes and escapes. Inside an object each value has a key, elsewhere the
 * key is NULL. Outside of all objects and arrays there is exactly one value. An assertion fails
 * if a caller breaks these rules. Infinity and NaN, which JSON lacks, become null. When memory runs
 * out, out->failed is set and nothing more is appended. One thread at a time.
 */
#pragma once

#include "base/diag.h"
#include "base/str.h"

struct json_t; /* Jansson's */

/* Nested objects and arrays. */
#define JSON_MAX_DEPTH 63

struct json_writer {
	struct str *out; /* borrowed */
	u32 depth;
	/* A bit for each level, of which bit 0 is the innermost: is an object; has a value. */
	u64 objects, filled;
};

void json_open_object(struct json_writer *w, const char *key);
void json_open_array(struct json_writer *w, const char *key);
/* Closes the innermost object or array. */
void json_close(struct json_writer *w);

/* Text for people, and keys: one line without control characters (text_append_clean()). */
void json_put_text(struct json_writer *w, const char *key, const char *text);
/* All characters, control characters as escapes; bytes that are not UTF-8 become U+FFFD. */
void json_put_exact(struct json_writer *w, const char *key, const char *text);
void json_put_u64(struct json_writer *w, const char *key, u64 v);
void json_put_s64(struct json_writer *w, const char *key, s64 v);
/* A number with `decimals` digits after the point. */
void json_put_fixed(struct json_writer *w, const char *key, double v, u32 decimals);
/* v / 10^decimals, exactly: nanoseconds with 6 decimals are milliseconds. */
void json_put_scaled(struct json_writer *w, const char *key, u64 v, u32 decimals);
/* As many digits as it takes to read the same number back. */
void json_put_double(struct json_writer *w, const char *key, double v);
void json_put_bool(struct json_writer *w, const char *key, bool v);
void json_put_null(struct json_writer *w, const char *key);
/* A whole value that another writer has written. */
void json_put_written(struct json_writer *w, const char *key, const char *json);

/*
 * An upper bound of the memory that Jansson needs for a text, by its characters: an object takes
 * about 300 bytes with its first table, an array 150, a member or an item with its name up to 200.
 */
u64 json_tree_bytes(const char *text, size_t n);
/*
 * Reads a whole text with json_loadb() and its flags. -EBADMSG, and the diag says where. Free *ret
 * with json_decref().
 */
int json_read(const char *text, size_t n, size_t flags, struct json_t **ret,
	      struct diag *reterr_diag);
