/* SPDX-License-Identifier: Apache-2.0 */
/* What `culprit doctor -p` says about --attach-java. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/attach/internal.h"

void attach_describe(struct runtimes *r, const struct procman_process *p,
		     void (*line)(void *arg, const char *text), void *arg)
{
	struct diag d = {};
	char text[320];
	u64 avma = 0;
	int e = runtimes_flag(r, p, ATTACH_FLAG, &avma);
	struct jvm j = jvm_of(p, avma);

	if (e == -ESRCH)
		return;
	e = jvm_open(&j, &d);
	if (e == 0)
		e = jvm_may_ask(&j, &d);
	if (e == 0)
		snprintf(text, sizeof(text),
			 "--attach-java: it can be asked to start its Flight Recorder (JDK 8u262 "
			 "and newer have one)");
	else
		snprintf(text, sizeof(text), "--attach-java: it is not asked: %s", d.text);
	jvm_close(&j);
	line(arg, text);
}
