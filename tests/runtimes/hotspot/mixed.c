/* SPDX-License-Identifier: Apache-2.0 */
/* The native methods of Mixed.java, and java() for its script, through CPython's stable ABI. */
#include <dlfcn.h>
#include <jni.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *object;
struct method {
	const char *name;
	object (*call)(object self, object argument);
	int flags;
	const char *doc;
};
#define METH_O 8

static JNIEnv *java;
static jclass mixed;
static jmethodID java_method;
static object step;
static object (*call_function)(object, const char *, ...);
static long (*as_long)(object);
static object (*from_long)(long);

static void *symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (!p) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return p;
}

static object call_java(object self, object n)
{
	(void)self;
	(*java)->CallStaticVoidMethod(java, mixed, java_method, (jint)as_long(n));
	return from_long(0);
}

static struct method method = {"java", call_java, METH_O, NULL};

JNIEXPORT void JNICALL Java_Mixed_begin(JNIEnv *env, jclass class, jstring libpython,
					jstring script)
{
	const char *library = (*env)->GetStringUTFChars(env, libpython, NULL);
	const char *path = (*env)->GetStringUTFChars(env, script, NULL);
	void *lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	object main_module;
	char line[4096];

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	java = env;
	mixed = (*env)->NewGlobalRef(env, class);
	java_method = (*env)->GetStaticMethodID(env, class, "java", "(I)V");
	call_function = symbol(lib, "PyObject_CallFunction");
	as_long = symbol(lib, "PyLong_AsLong");
	from_long = symbol(lib, "PyLong_FromLong");
	((void (*)(int))symbol(lib, "Py_InitializeEx"))(0);
	main_module = ((object(*)(const char *))symbol(lib, "PyImport_AddModule"))("__main__");
	((int (*)(object, const char *, object))symbol(lib, "PyObject_SetAttrString"))(
		main_module, "java",
		((object(*)(struct method *, object, object))symbol(lib, "PyCFunction_NewEx"))(
			&method, NULL, NULL));
	snprintf(line, sizeof(line), "exec(compile(open('%s').read(), '%s', 'exec'))", path, path);
	if (((int (*)(const char *))symbol(lib, "PyRun_SimpleString"))(line))
		exit(1);
	step = ((object(*)(object, const char *))symbol(lib, "PyObject_GetAttrString"))(main_module,
											"step");
}

JNIEXPORT void JNICALL Java_Mixed_python(JNIEnv *env, jclass class, jint n)
{
	(void)env;
	(void)class;
	if (!call_function(step, "i", n))
		exit(1);
}
