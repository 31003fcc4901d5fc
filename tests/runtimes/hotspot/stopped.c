/* SPDX-License-Identifier: Apache-2.0 */
/* The native methods of Stopped.java. */
#include <jni.h>

static int stopped;

JNIEXPORT jint JNICALL Java_Stopped_spin(JNIEnv *env, jclass class, jboolean forever)
{
	volatile jint n = 0;

	(void)env;
	(void)class;
	if (forever)
		__atomic_fetch_add(&stopped, 1, __ATOMIC_RELAXED);
	while (forever) /* NOLINT: volatile, so that the compiler keeps the return */
		n++;
	return n;
}

JNIEXPORT jint JNICALL Java_Stopped_stopped(JNIEnv *env, jclass class)
{
	(void)env;
	(void)class;
	return __atomic_load_n(&stopped, __ATOMIC_RELAXED);
}

JNIEXPORT jint JNICALL Java_Stopped_cross(JNIEnv *env, jclass class, jint depth)
{
	jmethodID m = (*env)->GetStaticMethodID(env, class, "down", "(I)I");
	jint x = m ? (*env)->CallStaticIntMethod(env, class, m, depth - 1) : 0;

	__asm__ volatile("" ::: "memory"); /* prevents a tail call */
	return x + 1;
}
