/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An extension for CPython 3.6 and later, with C code between Python code:
 *
 *	callback.sort(f)	calls f() in each comparison of libc's qsort()
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

/* The argument of the innermost sort(). */
static PyObject *function; /* borrowed */
static int failed;

__attribute__((noinline)) int callback_compare(const void *a, const void *b)
{
	PyObject *got = failed ? NULL : PyObject_CallObject(function, NULL);

	(void)a;
	(void)b;
	failed |= !got;
	Py_XDECREF(got);
	return 0;
}

__attribute__((noinline)) PyObject *callback_sort(PyObject *self, PyObject *f)
{
	PyObject *before = function;
	int numbers[3] = {3, 2, 1};

	(void)self;
	function = f;
	failed = 0;
	qsort(numbers, 3, sizeof(numbers[0]), callback_compare);
	function = before;
	if (failed)
		return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"sort", callback_sort, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT, "callback", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_callback(void)
{
	return PyModule_Create(&module);
}
