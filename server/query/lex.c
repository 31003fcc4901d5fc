/* SPDX-License-Identifier: Apache-2.0 */
#include "server/query/lex.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || (c && strchr("_.:/-", c)) || (u8)c >= 0x80;
}

static int read_string(struct lex *l)
{
	char quote = *l->pos++;

	for (; *l->pos && *l->pos != quote; l->pos++) {
		char c = *l->pos;

		if (c == '\\' && l->pos[1]) {
			c = *++l->pos;
			if (c == 'n')
				c = '\n';
			else if (c == 't')
				c = '\t';
			else if (c != '\\' && c != '"' && c != '\'')
				str_putc(&l->word, '\\'); /* in a regular expression */
		}
		str_putc(&l->word, c);
	}
	if (!*l->pos)
		return diag_set(l->diag, -EINVAL, "a string without its closing %c", quote);
	l->pos++;
	l->kind = LEX_STRING;
	return 0;
}

int lex_next(struct lex *l)
{
	str_clear(&l->word);
	while (isspace((unsigned char)*l->pos))
		l->pos++;
	l->kind = LEX_END;
	if (!*l->pos)
		return 0;
	if (*l->pos == '"' || *l->pos == '\'')
		return read_string(l);
	if (is_word(*l->pos)) {
		while (is_word(*l->pos))
			str_putc(&l->word, *l->pos++);
		l->kind = LEX_WORD;
	} else if (strchr("=!~", *l->pos)) {
		str_putc(&l->word, *l->pos++);
		if ((*l->word.data == '=' && *l->pos == '~') ||
		    (*l->word.data == '!' && (*l->pos == '=' || *l->pos == '~')))
			str_putc(&l->word, *l->pos++);
		l->kind = LEX_OPERATOR;
	} else {
		str_putc(&l->word, *l->pos++);
		l->kind = LEX_OTHER;
	}
	return l->word.failed ? -ENOMEM : 0;
}

int lex_init(struct lex *l, const char *text, struct diag *reterr_diag)
{
	*l = (struct lex){.text = text, .pos = text, .diag = reterr_diag};
	if (strlen(text) > QUERY_MAX_TEXT)
		return diag_set(reterr_diag, -EINVAL, "longer than %d characters", QUERY_MAX_TEXT);
	return lex_next(l);
}

void lex_deinit(struct lex *l)
{
	str_deinit(&l->word);
}

bool lex_is(const struct lex *l, enum lex_kind kind, const char *word)
{
	return l->kind == kind && !strcmp(str_get(&l->word), word);
}

int lex_fail(struct lex *l, const char *expected)
{
	if (l->kind == LEX_END)
		return diag_set(l->diag, -EINVAL, "expected %s at the end", expected);
	return diag_set(l->diag, -EINVAL, "expected %s, not '%.40s' (before character %zu)",
			expected, str_get(&l->word), (size_t)(l->pos - l->text) + 1);
}
