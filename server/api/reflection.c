/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC's reflection: the services of the gRPC port, and the .proto files that describe them, as
 * protoc read them in the build (proto/). Without state: each answer has a file and all files that
 * it imports. v1 and v1alpha are the same on the wire. No file has extensions.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/pb.h"
#include "server/api/descriptor.pb-c.h"
#include "server/api/grpc_reflection.pb-c.h"
#include "server/api/internal.h"

#define ARENA_BYTES (1u << 20)
#define FILES_MAX 32
/* Of the oneofs of request and response. */
#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWERS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

extern const unsigned char descriptors[];
extern const size_t descriptors_n;

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

/* All .proto files: a file comes after those that it imports. */
struct files {
	const ProtobufCBinaryData *packed;
	const Descriptor__File *file[FILES_MAX];
	size_t n;
};

static int load_files(struct arena *a, struct files *ret)
{
	ProtobufCMessage *set, *file;
	const Descriptor__FileSet *all;
	int r = pb_unpack(&descriptor__file_set__descriptor, "the descriptors", descriptors,
			  descriptors_n, a, &set, NULL);

	if (r < 0)
		return r;
	all = (const Descriptor__FileSet *)set;
	*ret = (struct files){.packed = all->file, .n = MIN(all->n_file, (size_t)FILES_MAX)};
	for (size_t i = 0; i < ret->n; i++) {
		r = pb_unpack(&descriptor__file__descriptor, "a descriptor", all->file[i].data,
			      all->file[i].len, a, &file, NULL);
		if (r < 0)
			return r;
		ret->file[i] = (const Descriptor__File *)file;
	}
	return 0;
}

/* ---- names ---- */

/* What follows a name and a dot in a symbol; "": the symbol is the name; NULL: it is another. */
static const char *after(const char *symbol, const char *name)
{
	size_t n = strlen(name);

	if (strncmp(symbol, name, n) != 0)
		return NULL;
	if (!symbol[n])
		return symbol + n;
	return symbol[n] == '.' && symbol[n + 1] ? symbol + n + 1 : NULL;
}

static bool has_name(Descriptor__Named *const *v, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(v[i]->name, name))
			return true;
	return false;
}

/* The values of an enum lie beside it, not in it. */
static bool has_enum(Descriptor__Enum *const *v, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(v[i]->name, name) || has_name(v[i]->value, v[i]->n_value, name))
			return true;
	return false;
}

static const Descriptor__Message *find_message(Descriptor__Message *const *v, size_t n,
					       const char *symbol)
{
	for (size_t i = 0; i < n; i++) {
		const char *rest = after(symbol, v[i]->name);

		if (rest)
			return *rest ? find_message(v[i]->nested_type, v[i]->n_nested_type, rest)
				     : v[i];
	}
	return NULL;
}

static const Descriptor__Message *message_of(const Descriptor__File *f, const char *symbol)
{
	const char *name = after(symbol, f->package);

	return name ? find_message(f->message_type, f->n_message_type, name) : NULL;
}

/* Whether the file declares a service, method, message, field, oneof, enum or value. */
static bool declares(const Descriptor__File *f, const char *symbol)
{
	const char *name = after(symbol, f->package), *leaf = strrchr(symbol, '.');
	_cleanup_free_ char *parent = leaf ? strndup(symbol, (size_t)(leaf - symbol)) : NULL;
	const Descriptor__Message *m = parent ? message_of(f, parent) : NULL;

	if (!name)
		return false;
	for (size_t i = 0; i < f->n_service; i++) {
		const Descriptor__Service *s = f->service[i];
		const char *rest = after(name, s->name);

		if (rest && (!*rest || has_name(s->method, s->n_method, rest)))
			return true;
	}
	if (m && (has_name(m->field, m->n_field, leaf + 1) ||
		  has_name(m->oneof_decl, m->n_oneof_decl, leaf + 1) ||
		  has_enum(m->enum_type, m->n_enum_type, leaf + 1)))
		return true;
	return message_of(f, symbol) || has_enum(f->enum_type, f->n_enum_type, name);
}

/* ---- answers: `a` is a copy, into which each puts its own part ---- */

static int put_error(reflection_response a, int status, const char *text, struct str *out)
{
	Grpc__Reflection__V1__ErrorResponse e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

	e.error_code = status;
	e.error_message = (char *)text;
	a.message_response_case = ANSWERS(ERROR_RESPONSE);
	a.error_response = &e;
	return pb_pack(&a.base, out);
}

static int put_services(const struct files *fs, reflection_response a, struct str *out)
{
	Grpc__Reflection__V1__ListServiceResponse list =
		GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
	Grpc__Reflection__V1__ServiceResponse services[FILES_MAX], *pointers[FILES_MAX];
	char names[FILES_MAX][128];

	list.service = pointers;
	for (size_t i = 0; i < fs->n; i++) {
		const Descriptor__File *f = fs->file[i];

		for (size_t k = 0; k < f->n_service && list.n_service < FILES_MAX; k++) {
			size_t at = list.n_service++;

			snprintf(names[at], sizeof(names[at]), "%s.%s", f->package,
				 f->service[k]->name);
			grpc__reflection__v1__service_response__init(&services[at]);
			services[at].name = names[at];
			pointers[at] = &services[at];
		}
	}
	a.message_response_case = ANSWERS(LIST_SERVICES_RESPONSE);
	a.list_services_response = &list;
	return pb_pack(&a.base, out);
}

/* The file first, then those that it imports. */
static int put_file(const struct files *fs, size_t file, reflection_response a, struct str *out)
{
	Grpc__Reflection__V1__FileDescriptorResponse list =
		GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
	ProtobufCBinaryData packed[FILES_MAX];
	bool wanted[FILES_MAX] = {};

	list.file_descriptor_proto = packed;
	wanted[file] = true;
	for (size_t i = file + 1; i-- > 0;) {
		const Descriptor__File *f = fs->file[i];

		if (!wanted[i])
			continue;
		packed[list.n_file_descriptor_proto++] = fs->packed[i];
		for (size_t d = 0; d < f->n_dependency; d++)
			for (size_t k = 0; k < i; k++)
				wanted[k] |= !strcmp(fs->file[k]->name, f->dependency[d]);
	}
	a.message_response_case = ANSWERS(FILE_DESCRIPTOR_RESPONSE);
	a.file_descriptor_response = &list;
	return pb_pack(&a.base, out);
}

static int put_extension_numbers(const char *type, reflection_response a, struct str *out)
{
	Grpc__Reflection__V1__ExtensionNumberResponse none =
		GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;

	none.base_type_name = (char *)type;
	a.message_response_case = ANSWERS(ALL_EXTENSION_NUMBERS_RESPONSE);
	a.all_extension_numbers_response = &none;
	return pb_pack(&a.base, out);
}

static int answer(const struct files *fs, const reflection_request *q, reflection_response a,
		  struct str *out)
{
	switch (q->message_request_case) {
	case ASKS(LIST_SERVICES):
		return put_services(fs, a, out);
	case ASKS(FILE_BY_FILENAME):
		for (size_t i = 0; i < fs->n; i++)
			if (!strcmp(fs->file[i]->name, q->file_by_filename))
				return put_file(fs, i, a, out);
		return put_error(a, NET_GRPC_NOT_FOUND, "no such file", out);
	case ASKS(FILE_CONTAINING_SYMBOL):
		for (size_t i = 0; i < fs->n; i++)
			if (declares(fs->file[i], q->file_containing_symbol))
				return put_file(fs, i, a, out);
		return put_error(a, NET_GRPC_NOT_FOUND, "no file declares this symbol", out);
	case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
		for (size_t i = 0; i < fs->n; i++)
			if (message_of(fs->file[i], q->all_extension_numbers_of_type))
				return put_extension_numbers(q->all_extension_numbers_of_type, a,
							     out);
		return put_error(a, NET_GRPC_NOT_FOUND, "no file declares this message", out);
	case ASKS(FILE_CONTAINING_EXTENSION):
		return put_error(a, NET_GRPC_NOT_FOUND, "no file has extensions", out);
	default:
		return put_error(a, NET_GRPC_INVALID_ARGUMENT, "the request asks for nothing", out);
	}
}

int api_reflection(const struct net_request *r, struct str *out, struct diag *reterr_diag)
{
	_cleanup_arena_ struct arena a = ARENA_INIT(ARENA_BYTES);
	reflection_response to = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
	ProtobufCMessage *m;
	struct files fs;
	int e;

	if (r->content_encoding)
		return diag_set(reterr_diag, -ENOTSUP, "send reflection's requests uncompressed");
	e = pb_unpack(&grpc__reflection__v1__server_reflection_request__descriptor,
		      "a reflection request", r->body, r->n_body, &a, &m, reterr_diag);
	if (e == 0)
		e = load_files(&a, &fs);
	if (e < 0)
		return e;
	to.original_request = (reflection_request *)m;
	to.valid_host = to.original_request->host;
	return answer(&fs, to.original_request, to, out);
}
