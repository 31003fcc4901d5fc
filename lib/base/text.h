/* SPDX-License-Identifier: Apache-2.0 */
/* Names and numbers as text that is safe to show: on one line, valid UTF-8, no control codes. */
#pragma once

#include "base/str.h"

/*
 * The first character of s: its length in bytes and its code point, or 0 when the bytes are not
 * UTF-8 (overlong forms, surrogates and what is above U+10FFFF are not).
 */
size_t text_decode(const char *s, size_t n, u32 *ret_code_point);
/*
 * Appends s as valid UTF-8 on one line: broken bytes become U+FFFD, control characters (C0, DEL,
 * C1, line and paragraph separators, direction overrides) become a space, spaces at both ends go.
 * `instead_of_semicolon` replaces ';' unless it is 0.
 */
void text_append_clean(struct str *out, const char *s, char instead_of_semicolon);
/* For XML text and attributes: as above, with all spaces, and & < > " ' as entities. */
void text_append_xml(struct str *out, const char *s);
/* As a JSON string with its quotes; clean. */
void text_append_json(struct str *out, const char *s);
/* Clean, and cut in the middle to at most `columns` characters; 0 is no limit. */
void text_append_cut(struct str *out, const char *s, size_t columns);
/* 1234567 as 1,234,567. */
void text_append_count(struct str *out, s64 v);
/* n bytes as 2 * n lower-case hex digits and a NUL. */
void text_hex(const u8 *bytes, size_t n, char *ret);
/* Exactly 2 * n hex digits as n bytes; else false, and nothing is written. */
bool text_unhex(const char *s, size_t n, u8 *ret);
/* Columns on a terminal; every character counts as one. */
size_t text_columns(const char *s);
