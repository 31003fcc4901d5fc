/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The classic flame graph as SVG: one <g> per frame with title, rect and text, and a script
 * (svg.js) for zoom and search. Without the script it is still a picture with tooltips.
 *
 *	 title
 *	 subtitle: quality, what is not drawn
 *	 | leaf |        | leaf |          y grows upward; an icicle has the root on top
 *	 |    caller     | caller |
 *	 |         all            |
 *	 details                  matched
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/vocab.h"
#include "format/internal.h"

#define WIDTH 1200
#define PAD_X 10
#define ROW 16
#define FONT 12
#define CHAR_WIDTH (FONT * 0.59) /* Verdana, on average */
#define MIN_WIDTH 0.1		 /* pixels */
#define TOP (FONT * 5)
#define BOTTOM (FONT * 2 + 10)

extern const unsigned char svg_script[];
extern const size_t svg_script_n;

struct svg {
	const struct profile *p;
	const struct profile_tree *t;
	struct str *out;
	bool icicle;
	const char *unit;
	u32 rows;
	double scale;	 /* pixels per unit */
	u64 not_drawn;	 /* too narrow */
	u64 only_before; /* diff: no width at all */
	double max_delta;
};

/* ---- colours ---- */

struct rgb {
	int r, g, b;
};

/* A name has the same colour in every graph. */
static struct rgb warm(double v, const char *name)
{
	if (strstr(name, "::"))
		return (struct rgb){215 + (int)(35 * v), 200 + (int)(40 * v), 70};
	return (struct rgb){215 + (int)(40 * v), 75 + (int)(65 * v), 60 + (int)(20 * v)};
}

static struct rgb wait_color(const char *frame)
{
	const char *colour = vocab_wait(vocab_wait_by_frame(frame, strlen(frame)))->colour;
	unsigned int r = 160, g = 160, b = 160;

	(void)sscanf(colour, "#%2x%2x%2x", &r, &g, &b);
	return (struct rgb){(int)r, (int)g, (int)b};
}

static struct rgb color_of(const struct profile_node *n, const char *name)
{
	double v = (double)(hash_bytes(name, strlen(name)) & 0xffff) / 0xffff;

	if (n->level != PROFILE_LEVEL_FRAME)
		return (struct rgb){190 + (int)(30 * v), 190 + (int)(30 * v), 200 + (int)(20 * v)};
	if (n->kind == FRAME_WAIT)
		return wait_color(name);
	if (n->flags & PROFILE_FRAME_INLINED)
		return (struct rgb){60 + (int)(30 * v), 165 + (int)(55 * v), 165 + (int)(55 * v)};
	switch (vocab_frame_kind(n->kind)->class) {
	case FRAME_CLASS_KERNEL:
		return (struct rgb){235 + (int)(20 * v), 155 + (int)(35 * v), 45};
	case FRAME_CLASS_MANAGED:
		return (struct rgb){80 + (int)(40 * v), 190 + (int)(50 * v), 80 + (int)(40 * v)};
	case FRAME_CLASS_NOTE:
	case FRAME_CLASS_UNKNOWN:
		return (struct rgb){160, 160, 160};
	default:
		return warm(v, name);
	}
}

/* White where nothing changed, red where it grew, blue where it shrank. */
static struct rgb diff_color(const struct svg *s, const struct profile_node *n)
{
	double delta = (double)n->self - (double)n->base_self;
	int pale = s->max_delta > 0 ? 80 + (int)(150 * (1 - fabs(delta) / s->max_delta)) : 230;

	if (delta > 0)
		return (struct rgb){255, pale, pale};
	if (delta < 0)
		return (struct rgb){pale, pale, 255};
	return (struct rgb){250, 250, 250};
}

/* ---- frames ---- */

static double share_pct(const struct svg *s, s64 v)
{
	s64 all = s->t->nodes.data[0].total;

	return all ? 100.0 * (double)v / (double)all : 0;
}

static void append_value(struct svg *s, s64 v)
{
	if (vocab_per_second(s->unit))
		text_append_value(s->out, v, s->unit);
	else
		text_append_count(s->out, v);
}

static void append_title(struct svg *s, const struct profile_node *n, const char *name)
{
	s64 base = s->t->nodes.data[0].base_total;

	str_puts(s->out, "<title>");
	text_append_xml(s->out, name);
	str_puts(s->out, " (");
	append_value(s, n->total);
	if (!vocab_per_second(s->unit)) {
		str_puts(s->out, " ");
		text_append_xml(s->out, s->unit);
	}
	str_printf(s->out, ", %.2f%%", share_pct(s, n->total));
	if (s->t->has_base) {
		str_puts(s->out, "; before ");
		append_value(s, n->base_total);
		str_printf(s->out, ", %.2f%%",
			   base ? 100.0 * (double)n->base_total / (double)base : 0);
	}
	str_puts(s->out, ")</title>");
}

static void append_label(struct svg *s, const char *name, double width)
{
	_cleanup_str_ struct str clean = {};
	double fit = (width - 6) / CHAR_WIDTH;
	const char *text;
	size_t n, keep;

	if (fit < 3)
		return;
	text_append_clean(&clean, name, 0);
	text = str_get(&clean);
	n = text_columns(text);
	if ((double)n <= fit) {
		text_append_xml(s->out, text);
		return;
	}
	keep = (size_t)fit - 2;
	for (n = 0; text[n]; n++)
		if (((u8)text[n] & 0xc0) != 0x80 && keep-- == 0)
			break;
	if (clean.data)
		clean.data[n] = '\0';
	text_append_xml(s->out, str_get(&clean));
	str_puts(s->out, "..");
}

static void append_frame(struct svg *s, const struct profile_node *n, s64 start, u32 depth)
{
	const char *name = strtab_get(&s->t->strings, n->name);
	double x = PAD_X + (double)start * s->scale, width = (double)n->total * s->scale;
	u32 row = s->icicle ? depth : s->rows - 1 - depth;
	struct rgb c = s->t->has_base ? diff_color(s, n) : color_of(n, name);
	double y = TOP + (double)row * ROW;

	str_printf(s->out, "<g data-s=\"%lld\" data-t=\"%lld\">", start, n->total);
	append_title(s, n, name);
	str_printf(s->out,
		   "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" "
		   "fill=\"rgb(%d,%d,%d)\" rx=\"2\" ry=\"2\"/><text x=\"%.2f\" y=\"%.1f\">",
		   x, y, width, ROW - 1, c.r, c.g, c.b, x + 3, y + ROW - 4.5);
	append_label(s, name, width);
	str_puts(s->out, "</text></g>\n");
}

/*
 * Walks the tree with, per open level, where its next child begins. Frames that are too narrow are
 * passed over with all below them, and counted.
 */
static int append_frames(struct svg *s)
{
	const struct profile_tree *t = s->t;
	vec(s64) next = {};
	vec(u32) open = {};
	int r = 0;

	for (u32 i = 0; i < t->nodes.n && r == 0; i++) {
		const struct profile_node *n = &t->nodes.data[i];
		s64 start = 0;

		while (open.n && open.data[open.n - 1] != n->parent)
			open.n--;
		next.n = open.n;
		if (open.n) {
			start = next.data[open.n - 1];
			next.data[open.n - 1] += MAX(n->total, (s64)0);
		}
		if (i && (n->total <= 0 || (double)n->total * s->scale < MIN_WIDTH)) {
			if (n->total > 0)
				s->not_drawn += n->n_below + 1;
			else
				s->only_before += n->n_below + 1;
			i += n->n_below;
			continue;
		}
		append_frame(s, n, start, (u32)open.n);
		r = vec_push(&open, i);
		if (r == 0)
			r = vec_push(&next, start);
	}
	vec_deinit(&open);
	vec_deinit(&next);
	return r;
}

/* Rows needed for what is wide enough to be drawn. */
static u32 count_rows(const struct svg *s)
{
	const struct profile_tree *t = s->t;
	_cleanup_free_ u32 *depth = calloc(t->nodes.n, sizeof(u32));
	u32 rows = 1;

	if (!depth)
		return t->depth + 1;
	for (u32 i = 1; i < t->nodes.n; i++) {
		const struct profile_node *n = &t->nodes.data[i];

		if (n->total <= 0 || (double)n->total * s->scale < MIN_WIDTH) {
			i += n->n_below;
			continue;
		}
		depth[i] = depth[n->parent] + 1;
		rows = MAX(rows, depth[i] + 1);
	}
	return rows;
}

/* ---- around the frames ---- */

static void append_text(struct str *out, const char *id, double x, double y, const char *style,
			const char *text)
{
	str_printf(out, "<text id=\"%s\" x=\"%.1f\" y=\"%.1f\"%s>", id, x, y, style);
	text_append_xml(out, text);
	str_puts(out, "</text>\n");
}

static void append_head(struct svg *s, const char *title)
{
	double height = TOP + (double)s->rows * ROW + BOTTOM;

	str_printf(s->out,
		   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" "
		   "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" data-width=\"%d\" data-pad=\"%d\" "
		   "data-total=\"%lld\" data-char=\"%.2f\" data-icicle=\"%d\">\n"
		   "<!-- culprit " CULPRIT_VERSION " -->\n"
		   "<style>text{font:%dpx Verdana,sans-serif;fill:#000}"
		   "#frames text{pointer-events:none}#frames rect{cursor:pointer}"
		   "#frames g:hover rect{stroke:#000;stroke-width:0.5}</style>\n"
		   "<rect width=\"100%%\" height=\"100%%\" fill=\"#f8f6e8\"/>\n",
		   WIDTH, height, WIDTH, height, WIDTH, PAD_X, s->t->nodes.data[0].total,
		   CHAR_WIDTH, s->icicle, FONT);
	append_text(s->out, "title", WIDTH / 2.0, FONT * 2,
		    " text-anchor=\"middle\" style=\"font-size:17px\"", title);
}

static void append_foot(struct svg *s)
{
	double y = TOP + (double)s->rows * ROW + FONT + 8;
	_cleanup_str_ struct str sub = {};

	profile_quality_line(s->p, &sub);
	if (s->not_drawn) {
		str_puts(&sub, "; not drawn: ");
		text_append_count(&sub, (s64)s->not_drawn);
		str_printf(&sub, " frames narrower than %g px", MIN_WIDTH);
	}
	if (s->only_before) {
		str_puts(&sub, "; ");
		text_append_count(&sub, (s64)s->only_before);
		str_puts(&sub, " frames only before");
	}
	append_text(s->out, "subtitle", WIDTH / 2.0, FONT * 3.7,
		    " text-anchor=\"middle\" style=\"fill:#777\"", str_get(&sub));
	append_text(s->out, "details", PAD_X, y, "", "");
	append_text(s->out, "matched", WIDTH - PAD_X, y, " text-anchor=\"end\"", "");
	/* Shown by the script, without which they do nothing. */
	append_text(s->out, "unzoom", PAD_X, FONT * 2, " style=\"display:none\"", "Reset Zoom");
	append_text(s->out, "search", WIDTH - PAD_X - 30, FONT * 2,
		    " text-anchor=\"end\" style=\"display:none\"", "Search");
	append_text(s->out, "ignorecase", WIDTH - PAD_X, FONT * 2,
		    " text-anchor=\"end\" style=\"display:none\"", "ic");
	str_puts(s->out, "<script><![CDATA[\n");
	str_append(s->out, svg_script, svg_script_n);
	str_puts(s->out, "]]></script>\n</svg>\n");
}

static void prepare(struct svg *s)
{
	const struct profile_type *type = &s->p->types[s->p->default_type];
	enum sample_type row = profile_table_type(s->p, s->p->default_type);
	s64 all = s->t->nodes.data[0].total;

	s->unit = profile_string(s->p, type->unit);
	if (!strcmp(s->unit, vocab_unit(UNIT_COUNT)))
		s->unit = row < SAMPLE_TYPE_N ? vocab_sample_type(row)->rate
					      : profile_string(s->p, type->name);
	s->scale = all > 0 ? (WIDTH - 2.0 * PAD_X) / (double)all : 0;
	s->rows = count_rows(s);
	for (size_t i = 0; i < s->t->nodes.n; i++) {
		const struct profile_node *n = &s->t->nodes.data[i];

		s->max_delta = fmax(s->max_delta, fabs((double)n->self - (double)n->base_self));
	}
}

int svg_write(const struct profile *p, const struct profile_write_options *o, struct str *out,
	      struct diag *reterr_diag)
{
	_cleanup_profile_tree_ struct profile_tree *t = NULL;
	struct svg s = {.p = p, .out = out, .icicle = o->icicle};
	const char *title = o->title ? o->title : profile_string(p, p->title);
	int r = profile_tree_for_writer(p, o, &t);

	if (r < 0)
		return r;
	if (p->default_type >= p->n_types)
		return diag_set(reterr_diag, -EINVAL, "a profile without values");
	s.t = t;
	prepare(&s);
	append_head(&s, *title	    ? title
			: o->base   ? "Differential flame graph"
			: o->icicle ? "Icicle graph"
				    : "Flame graph");
	str_puts(out, "<g id=\"frames\">\n");
	r = append_frames(&s);
	str_puts(out, "</g>\n");
	append_foot(&s);
	return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
