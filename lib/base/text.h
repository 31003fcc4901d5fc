/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Appends names and numbers as text that is safe to show: one line of valid UTF-8 without control
 * characters.
 */
#pragma once

#include "base/str.h"

/*
 * Decodes the first character of s. Returns its length in bytes, or 0 if the bytes are not UTF-8
 * (overlong forms, surrogates and code points above U+10FFFF are not).
 */
size_t text_decode(const char *s, size_t n, u32 *ret_code_point);
/*
 * Appends s as valid UTF-8 on one line: invalid bytes become U+FFFD; control characters (C0, DEL,
 * C1, line and paragraph separators, direction overrides) become a space; spaces at both ends are
 * removed. `instead_of_semicolon` replaces ';' unless it is 0.
 */
void text_append_clean(struct str *out, const char *s, char instead_of_semicolon);
/* In place, and without memory: control characters become spaces, invalid bytes '?'. */
void text_clean(char *s);
/*
 * For XML text and attributes: as above, but keeps spaces at the ends and writes & < > " ' as
 * entities.
 */
void text_append_xml(struct str *out, const char *s);
/* A clean JSON string with its quotes. */
void text_append_json(struct str *out, const char *s);
/* Clean, and shortened in the middle to at most `columns` characters; 0 means no limit. */
void text_append_cut(struct str *out, const char *s, size_t columns);
/* 1234567 becomes 1,234,567. */
void text_append_count(struct str *out, s64 v);
/* A value of a unit (abi/tbl/unit.tbl): time as "1.23 s" or "45.6 ms", others as "1,234 bytes". */
void text_append_value(struct str *out, s64 v, const char *unit);
/* Writes n bytes as 2 * n lower-case hex digits and a NUL. */
void text_hex(const u8 *bytes, size_t n, char *ret);
/* The value of a hex digit of either case, or -1. */
int text_hex_digit(char c);
/* Reads exactly 2 * n hex digits into n bytes. False, and nothing is written, if s is not that. */
bool text_unhex(const char *s, size_t n, u8 *ret);
void text_append_base64(struct str *out, const u8 *data, size_t n);
/* The value of a digit of base64, in either alphabet, or -1. */
int text_base64_digit(char c);
/* Columns on a terminal; every character counts as one. */
size_t text_columns(const char *s);
