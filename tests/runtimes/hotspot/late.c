/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that spins until it can read its standard input, then loads a JVM by dlopen() and
 * starts it.
 *
 *	late LIBJVM CLASS LIBRARY OPTION…
 */
#include <dlfcn.h>
#include <jni.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

typedef jint create_vm(JavaVM **vm, void **env, void *args);

__attribute__((noinline)) static void work_natively(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	volatile unsigned long n = 0;

	while (poll(&in, 1, 0) == 0)
		for (int i = 0; i < 1000000; i++)
			n++;
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

	if (argc < 4)
		return 2;
	puts("begins");
	fflush(stdout);
	work_natively();
	for (int i = 4; i < argc && args.nOptions < 16; i++)
		options[args.nOptions++].optionString = argv[i];
	jvm = dlopen(argv[1], RTLD_NOW);
	create = jvm ? (create_vm *)dlsym(jvm, "JNI_CreateJavaVM") : NULL;
	if (!create || create(&vm, (void **)&env, &args) != JNI_OK) {
		fprintf(stderr, "no JVM: %s\n", jvm ? "it does not start" : dlerror());
		return 1;
	}
	if (call_main(env, argv[2], argv[3])) {
		(*env)->ExceptionDescribe(env);
		return 1;
	}
	return (*vm)->DestroyJavaVM(vm); /* waits for the JVM's threads */
}
