/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Node-API addon: call(fn, n) calls the JavaScript function fn(n) from C and returns its result.
 * Node-API is a stable ABI, so this file declares what it uses, and one build runs on all versions.
 */
#include <stddef.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);

int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);
int napi_get_undefined(napi_env, napi_value *);
int napi_call_function(napi_env, napi_value, napi_value, size_t, const napi_value *, napi_value *);
int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);

napi_value native_call(napi_env env, napi_callback_info info)
{
	napi_value args[2], self, result = NULL;
	size_t n = 2;

	if (napi_get_cb_info(env, info, &n, args, &self, NULL) || n != 2 ||
	    napi_get_undefined(env, &self) ||
	    napi_call_function(env, self, args[0], 1, &args[1], &result))
		return NULL;
	return result;
}

napi_value napi_register_module_v1(napi_env env, napi_value exports)
{
	napi_value f;

	if (!napi_create_function(env, "call", (size_t)-1, native_call, NULL, &f))
		napi_set_named_property(env, exports, "call", f);
	return exports;
}
