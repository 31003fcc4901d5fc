/* SPDX-License-Identifier: Apache-2.0 */
/* The native methods of Chains.java. */
#include <jni.h>

static __attribute__((noinline)) jlong call_back(JNIEnv *env, jclass class, const char *name,
						 jint n)
{
	jmethodID m = (*env)->GetStaticMethodID(env, class, name, "(I)J");
	jlong x = m ? (*env)->CallStaticLongMethod(env, class, m, n) : 0;

	__asm__ volatile("" ::: "memory"); /* prevents a tail call */
	return x + 1;
}

JNIEXPORT jlong JNICALL Java_Chains_nativeOuter(JNIEnv *env, jclass class, jint n)
{
	return call_back(env, class, "between", n) + 1;
}

JNIEXPORT jlong JNICALL Java_Chains_nativeInner(JNIEnv *env, jclass class, jint n)
{
	return call_back(env, class, "callback", n) + 1;
}

JNIEXPORT jlong JNICALL Java_Chains_nativeSpin(JNIEnv *env, jclass class)
{
	volatile unsigned long forever = 1;

	(void)env;
	(void)class;
	while (forever)
		forever++;
	return 0;
}
