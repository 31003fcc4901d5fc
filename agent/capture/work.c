/* SPDX-License-Identifier: Apache-2.0 */
/* Capture's thread: follows the tasks. */
#include "agent/capture/internal.h"

void *capture_work(void *capture)
{
	struct capture *c = capture;

	pthread_mutex_lock(&c->lock);
	while (!c->ending)
		pthread_cond_wait(&c->wake, &c->lock);
	pthread_mutex_unlock(&c->lock);
	return NULL;
}
