/* SPDX-License-Identifier: Apache-2.0 */
/* How complete samples are, judged by their frames; and without those of the profiler itself. */
#include "profile/profile.h"

#include <errno.h>

#include "base/str.h"
#include "base/vocab.h"

const char *const profile_stand_ins[] = {PROFILE_OTHER_SERVICES, PROFILE_OTHER_SERIES,
					 PROFILE_OTHER_STACKS};

static bool is_truncation(const struct profile *p, const struct profile_frame *f)
{
	return f->kind == FRAME_NOTE && f->function < p->functions.n &&
	       str_starts(profile_string(p, p->functions.data[f->function].name), "[truncated");
}

void profile_count_quality(struct profile *p, u32 stack, u64 samples)
{
	const struct profile_stack *s = &p->stacks.data[stack];
	u64 unknown = 0, frames = 0;
	bool truncated = false, user = false;

	for (u32 i = 0; i < s->n; i++) {
		const struct profile_frame *f = &p->frames.data[p->stack_frames.data[s->first + i]];

		truncated |= is_truncation(p, f);
		if (vocab_frame_kind(f->kind)->class == FRAME_CLASS_NOTE)
			continue;
		user |= f->kind != FRAME_KERNEL;
		unknown += f->function == PROFILE_NONE;
		frames++;
	}
	p->quality.samples += samples;
	p->quality.truncated += truncated ? samples : 0;
	p->quality.user_stacks += user ? samples : 0;
	p->quality.unknown += unknown * samples;
	p->quality.frames += frames * samples;
}

void profile_derive_quality(struct profile *p)
{
	u32 t = profile_find_type(p, SAMPLE_TYPE_SAMPLES);

	p->quality = (struct profile_quality){.one_line = p->quality.one_line};
	for (size_t i = 0; t != PROFILE_NONE && i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		if (s->value[t] > 0)
			profile_count_quality(p, s->stack, (u64)s->value[t]);
	}
}

/* ---- the profiler's own samples ---- */

static bool is_of_others(void *arg, const struct profile *p, const struct profile_sample *s)
{
	(void)arg;
	return !profile_is_self(p, s->thread);
}

static u64 minus(u64 a, u64 b)
{
	return a - MIN(a, b);
}

/* Takes the profiler's own samples, judged by their frames, out of a quality that has them. */
static void leave_out_quality(const struct profile *p, u32 type, struct profile_quality *q)
{
	const struct profile_quality all = p->quality;
	/* Counts below; the rest of the profile is only read. */
	struct profile judge = *p;

	judge.quality = (struct profile_quality){};
	for (size_t i = 0; type != PROFILE_NONE && i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		if (profile_is_self(p, s->thread) && s->value[type] > 0)
			profile_count_quality(&judge, s->stack, (u64)s->value[type]);
	}
	*q = all;
	q->self += judge.quality.samples;
	q->samples = minus(all.samples, judge.quality.samples);
	q->truncated = minus(all.truncated, judge.quality.truncated);
	q->user_stacks = minus(all.user_stacks, judge.quality.user_stacks);
	q->unknown = minus(all.unknown, judge.quality.unknown);
	q->frames = minus(all.frames, judge.quality.frames);
}

int profile_leave_out_self(struct profile **p)
{
	_cleanup_profile_ struct profile *rest = NULL;
	struct diag d = {};
	bool any = false;
	int r;

	for (size_t i = 0; i < (*p)->n_samples && !any; i++)
		any = profile_is_self(*p, profile_sample(*p, i)->thread);
	if (!any)
		return 0;
	rest = profile_create();
	if (!rest)
		return -ENOMEM;
	r = profile_merge_some(rest, *p, is_of_others, NULL, &d);
	if (r < 0)
		return r;
	leave_out_quality(*p, profile_find_type(*p, SAMPLE_TYPE_SAMPLES), &rest->quality);
	profile_destroy(*p);
	*p = take_ptr(rest);
	return 0;
}
