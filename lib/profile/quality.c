/* SPDX-License-Identifier: Apache-2.0 */
/* How complete samples are, judged by their frames. */
#include "profile/profile.h"

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

	p->quality = (struct profile_quality){};
	for (size_t i = 0; t != PROFILE_NONE && i < p->n_samples; i++) {
		const struct profile_sample *s = profile_sample(p, i);

		if (s->value[t] > 0)
			profile_count_quality(p, s->stack, (u64)s->value[t]);
	}
}
