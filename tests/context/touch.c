/* SPDX-License-Identifier: Apache-2.0 */
/* A library with thread-local storage, which each thread that calls it gets. */
static _Thread_local int times;

int touch(void)
{
	return times++;
}
