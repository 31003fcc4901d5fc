/* SPDX-License-Identifier: Apache-2.0 */
#include "server/query/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/vec.h"
#include "base/vocab.h"
#include "regex/regex.h"
#include "server/query/lex.h"

#define MAX_NODES 256
#define MAX_NESTING 32

enum field { FIELD_FN, FIELD_FILE, FIELD_BINARY, FIELD_KIND, FIELD_LEAF };
enum node_kind { NODE_TEST, NODE_UNDER, NODE_NOT, NODE_AND, NODE_OR };

struct node {
	enum node_kind kind;
	u32 left, right; /* UNDER: left is a test, right is a test or another UNDER */
	/* Members of a test. */
	enum field field;
	char *text;	     /* owned */
	struct regex *regex; /* owned; NULL: the text itself */
	u8 *known;	     /* owned; indexed by frame: 0 = unknown, 1 = no, 2 = yes */
};

struct query_stacks {
	vec(struct node) nodes;
	u32 root;
	char *const *below; /* borrowed; root first */
	size_t n_below;
	const struct profile *profile; /* borrowed */
	struct str scratch;
	u32 n_regexes;
	int error; /* of a match */
	struct diag *diag;
};

struct parsing {
	struct lex *lex;
	struct query_stacks *to;
	u32 depth;
};

void query_stacks_free(struct query_stacks *s)
{
	if (!s)
		return;
	vec_foreach (&s->nodes, n) {
		free(n->text);
		free(n->known);
		regex_destroy(n->regex);
	}
	vec_deinit(&s->nodes);
	str_deinit(&s->scratch);
	free(s);
}

/* ---- parsing ---- */

static int add_node(struct parsing *p, const struct node *n, u32 *ret)
{
	if (p->to->nodes.n >= MAX_NODES)
		return diag_set(p->lex->diag, -EINVAL, "more than %d conditions", MAX_NODES);
	if (vec_push(&p->to->nodes, *n) < 0)
		return -ENOMEM;
	*ret = (u32)p->to->nodes.n - 1;
	return 0;
}

static int add_pair(struct parsing *p, enum node_kind kind, u32 left, u32 right, u32 *ret)
{
	return add_node(p, &(struct node){.kind = kind, .left = left, .right = right}, ret);
}

static int parse_field(struct parsing *p, enum field *ret)
{
	static const char *const names[] = {"fn", "file", "binary", "kind", "leaf"};

	for (u32 i = 0; i < ARRAY_SIZE(names); i++)
		if (lex_is(p->lex, LEX_WORD, names[i])) {
			*ret = i;
			return lex_next(p->lex);
		}
	return lex_fail(p->lex, "fn, file, binary, kind or leaf");
}

static int parse_operator(struct parsing *p, bool *ret_regex, bool *ret_negated)
{
	const char *word = str_get(&p->lex->word);

	if (p->lex->kind != LEX_OPERATOR || !strcmp(word, "!"))
		return lex_fail(p->lex, "=, !=, ~ or !~");
	*ret_regex = strchr(word, '~') != NULL;
	*ret_negated = word[0] == '!';
	return lex_next(p->lex);
}

static int make_regex(struct parsing *p, struct regex **ret)
{
	if (p->to->n_regexes++ >= QUERY_MAX_REGEXES)
		return diag_set(p->lex->diag, -EINVAL, "more than %d regular expressions",
				QUERY_MAX_REGEXES);
	return regex_create(str_get(&p->lex->word), false, p->lex->diag, ret);
}

static int parse_test(struct parsing *p, u32 *ret, bool *ret_negated)
{
	struct node n = {.kind = NODE_TEST};
	bool regex = false;
	int r = parse_field(p, &n.field);

	if (r == 0)
		r = parse_operator(p, &regex, ret_negated);
	if (r == 0 && p->lex->kind != LEX_STRING)
		r = lex_fail(p->lex, "a string in quotes");
	if (r == 0 && regex)
		r = make_regex(p, &n.regex);
	if (r < 0)
		return r;
	n.text = strdup(str_get(&p->lex->word));
	r = n.text ? add_node(p, &n, ret) : -ENOMEM;
	if (r < 0) {
		free(n.text);
		regex_destroy(n.regex);
		return r;
	}
	return lex_next(p->lex);
}

static int parse_under(struct parsing *p, u32 *ret)
{
	u32 chain[MAX_NESTING], n = 0, at;
	bool negated;
	int r = parse_test(p, &chain[n++], &negated);

	if (r == 0 && negated) {
		if (lex_is(p->lex, LEX_WORD, "under"))
			return lex_fail(p->lex, "no 'under' behind != or !~");
		return add_pair(p, NODE_NOT, chain[0], 0, ret);
	}
	while (r == 0 && lex_is(p->lex, LEX_WORD, "under")) {
		if (n >= ARRAY_SIZE(chain))
			return lex_fail(p->lex, "fewer frames in a chain");
		r = lex_next(p->lex);
		if (r == 0)
			r = parse_test(p, &chain[n++], &negated);
		if (r == 0 && negated)
			r = diag_set(p->lex->diag, -EINVAL, "no != or !~ behind 'under'");
	}
	if (r < 0)
		return r;
	at = chain[--n];
	while (n && r == 0)
		r = add_pair(p, NODE_UNDER, chain[--n], at, &at);
	*ret = at;
	return r;
}

static int parse_or(struct parsing *p, u32 *ret);

static int parse_not(struct parsing *p, u32 *ret)
{
	u32 inner = 0;
	int r;

	if (++p->depth > MAX_NESTING)
		return diag_set(p->lex->diag, -EINVAL, "nested too deeply");
	if (lex_is(p->lex, LEX_WORD, "not")) {
		r = lex_next(p->lex);
		if (r == 0)
			r = parse_not(p, &inner);
		if (r == 0)
			r = add_pair(p, NODE_NOT, inner, 0, ret);
	} else if (lex_is(p->lex, LEX_OTHER, "(")) {
		r = lex_next(p->lex);
		if (r == 0)
			r = parse_or(p, ret);
		if (r == 0)
			r = lex_is(p->lex, LEX_OTHER, ")") ? lex_next(p->lex)
							   : lex_fail(p->lex, "')'");
	} else {
		r = parse_under(p, ret);
	}
	p->depth--;
	return r;
}

static int parse_and(struct parsing *p, u32 *ret)
{
	u32 right = 0;
	int r = parse_not(p, ret);

	while (r == 0 && lex_is(p->lex, LEX_WORD, "and")) {
		r = lex_next(p->lex);
		if (r == 0)
			r = parse_not(p, &right);
		if (r == 0)
			r = add_pair(p, NODE_AND, *ret, right, ret);
	}
	return r;
}

static int parse_or(struct parsing *p, u32 *ret)
{
	u32 right = 0;
	int r = parse_and(p, ret);

	while (r == 0 && lex_is(p->lex, LEX_WORD, "or")) {
		r = lex_next(p->lex);
		if (r == 0)
			r = parse_and(p, &right);
		if (r == 0)
			r = add_pair(p, NODE_OR, *ret, right, ret);
	}
	return r;
}

int query_stacks_parse(const char *text, struct diag *reterr_diag, struct query_stacks **ret)
{
	_cleanup_query_stacks_ struct query_stacks *s = calloc(1, sizeof(*s));
	_cleanup_lex_ struct lex l = {};
	struct parsing p = {.lex = &l, .to = s};
	int r;

	if (!s)
		return -ENOMEM;
	if (!text || !*text) {
		*ret = take_ptr(s);
		return 0;
	}
	r = lex_init(&l, text, reterr_diag);
	if (r == 0)
		r = parse_or(&p, &s->root);
	if (r == 0 && l.kind != LEX_END)
		r = lex_fail(&l, "'and', 'or', 'under' or the end");
	if (r == 0)
		*ret = take_ptr(s);
	return r;
}

/* ---- evaluation ---- */

int query_stacks_profile(struct query_stacks *s, const struct profile *p)
{
	s->profile = p;
	vec_foreach (&s->nodes, n) {
		if (n->kind != NODE_TEST)
			continue;
		free(n->known);
		n->known = calloc(p->frames.n + 1, 1);
		if (!n->known)
			return -ENOMEM;
	}
	return 0;
}

static const char *field_of(struct query_stacks *s, enum field field, u32 frame)
{
	const struct profile *p = s->profile;
	const struct profile_frame *f = &p->frames.data[frame];

	switch (field) {
	case FIELD_FN:
	case FIELD_LEAF:
		return profile_frame_name(p, frame, &s->scratch);
	case FIELD_FILE:
		return f->function == PROFILE_NONE
			       ? ""
			       : profile_string(p, p->functions.data[f->function].file);
	case FIELD_BINARY:
		return f->mapping == PROFILE_NONE
			       ? ""
			       : profile_string(p, p->mappings.data[f->mapping].path);
	default:
		return vocab_frame_kind(f->kind)->name;
	}
}

static bool frame_has(struct query_stacks *s, struct node *n, u32 frame)
{
	if (!n->known[frame]) {
		const char *text = field_of(s, n->field, frame);
		int yes = n->regex ? regex_match(n->regex, text, s->diag) : !strcmp(text, n->text);

		if (yes < 0)
			s->error = yes;
		n->known[frame] = yes > 0 ? 2 : 1;
	}
	return n->known[frame] == 2;
}

/* The first frame from `at` towards the root that passes; n if there is none. */
static u32 find_frame(struct query_stacks *s, struct node *test, const u32 *frames, u32 at, u32 n)
{
	if (test->field == FIELD_LEAF)
		return at == 0 && n && frame_has(s, test, frames[0]) ? 0 : n;
	while (at < n && !s->error && !frame_has(s, test, frames[at]))
		at++;
	return at;
}

/* Matches greedily: the frame nearest to the leaf leaves most frames for the rest of the chain. */
static bool chain_matches(struct query_stacks *s, u32 node, const u32 *frames, u32 n)
{
	u32 at = 0;

	for (;;) {
		struct node *e = &s->nodes.data[node];
		bool last = e->kind == NODE_TEST;

		at = find_frame(s, last ? e : &s->nodes.data[e->left], frames, at, n);
		if (at >= n)
			return false;
		if (last)
			return true;
		at++;
		node = e->right;
	}
}

static bool node_matches(struct query_stacks *s, u32 node, const u32 *frames, u32 n)
{
	const struct node *e = &s->nodes.data[node];

	switch (e->kind) {
	case NODE_NOT:
		return !node_matches(s, e->left, frames, n);
	case NODE_AND:
		return node_matches(s, e->left, frames, n) && node_matches(s, e->right, frames, n);
	case NODE_OR:
		return node_matches(s, e->left, frames, n) || node_matches(s, e->right, frames, n);
	default:
		return chain_matches(s, node, frames, n);
	}
}

void query_stacks_below(struct query_stacks *s, char *const *names, size_t n)
{
	s->below = names;
	s->n_below = n;
}

static bool is_below(struct query_stacks *s, const u32 *frames, u32 n)
{
	if (n < s->n_below)
		return false;
	for (size_t i = 0; i < s->n_below; i++)
		if (strcmp(field_of(s, FIELD_FN, frames[n - 1 - i]), s->below[i]) != 0)
			return false;
	return true;
}

int query_stacks_match(struct query_stacks *s, u32 stack, struct diag *reterr_diag)
{
	const struct profile_stack *e = &s->profile->stacks.data[stack];
	const u32 *frames = s->profile->stack_frames.data + e->first;
	bool yes;

	s->diag = reterr_diag;
	yes = is_below(s, frames, e->n) && (!s->nodes.n || node_matches(s, s->root, frames, e->n));
	return s->error ? s->error : yes;
}
