/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that works for some seconds of CPU time, then loads a JVM by dlopen() and starts it.
 *
 *	late LIBJVM SECONDS CLASS LIBRARY OPTION…
 */
#include <dlfcn.h>
#include <jni.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef jint create_vm(JavaVM **vm, void **env, void *args);

__attribute__((noinline)) static void work_natively(double seconds)
{
	volatile unsigned long n = 0;
	struct timespec begin, now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	do {
		for (int i = 0; i < 1000000; i++)
			n++;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	} while ((double)(now.tv_sec - begin.tv_sec) +
			 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) <
		 seconds);
}

__attribute__((noinline)) static int call_main(JNIEnv *env, const char *name, const char *library)
{
	jclass class = (*env)->FindClass(env, name);
	jmethodID m =
		class ? (*env)->GetStaticMethodID(env, class, "main", "([Ljava/lang/String;)V")
		      : NULL;
	jclass string = (*env)->FindClass(env, "java/lang/String");
	jobjectArray args = (*env)->NewObjectArray(env, 1, string, NULL);

	if (!m || !args)
		return 1;
	(*env)->SetObjectArrayElement(env, args, 0, (*env)->NewStringUTF(env, library));
	(*env)->CallStaticVoidMethod(env, class, m, args);
	return (*env)->ExceptionCheck(env);
}

int main(int argc, char **argv)
{
	JavaVMOption options[16] = {};
	JavaVMInitArgs args = {.version = JNI_VERSION_1_8, .options = options};
	create_vm *create;
	JavaVM *vm;
	JNIEnv *env;
	void *jvm;

	if (argc < 5)
		return 2;
	puts("begins");
	fflush(stdout);
	work_natively(atof(argv[2]));
	for (int i = 5; i < argc && args.nOptions < 16; i++)
		options[args.nOptions++].optionString = argv[i];
	jvm = dlopen(argv[1], RTLD_NOW);
	create = jvm ? (create_vm *)dlsym(jvm, "JNI_CreateJavaVM") : NULL;
	if (!create || create(&vm, (void **)&env, &args) != JNI_OK) {
		fprintf(stderr, "no JVM: %s\n", jvm ? "it does not start" : dlerror());
		return 1;
	}
	if (call_main(env, argv[3], argv[4])) {
		(*env)->ExceptionDescribe(env);
		return 1;
	}
	return (*vm)->DestroyJavaVM(vm); /* waits for its threads */
}
