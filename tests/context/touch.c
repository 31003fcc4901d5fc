/* SPDX-License-Identifier: Apache-2.0 */
/* A library of which each thread that calls it has a part. */
static _Thread_local int times;

int touch(void)
{
	return times++;
}
