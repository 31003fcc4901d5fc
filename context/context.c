/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers may see the records of both OTEPs at any moment, while the writer is stopped between two
 * instructions or runs in parallel: the field that marks a record as valid is written last and
 * cleared first.
 *
 * Threads: each has a record, and a pointer to it in an exported thread-local variable that readers
 * find by its name. Process: a page that readers find by its name, with a pointer to a message.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "culprit_context.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define EXPORT __attribute__((visibility("default")))

#define MAX_MESSAGE 16384
#define MAX_KEYS 256
#define MAX_ATTRIBUTES 612 /* bytes per thread: 640 with the header, as the OTEP recommends */
#define NEAR_ATTRIBUTES 104
#define SCHEMA "tlsdesc_v1_dev"

/* ---- threads ---- */

struct record {
	uint8_t trace_id[16];
	uint8_t span_id[8];
	uint8_t valid;
	uint8_t flags;
	uint16_t n_attributes; /* bytes of the attributes, which follow */
};
_Static_assert(sizeof(struct record) == 28, "OTEP 4947");

/*
 * A thread's record directly follows the pointer to it, so that a reader gets both with one read,
 * from memory that the thread uses anyway. A record with many attributes is elsewhere, because all
 * libraries that are loaded late share 512 bytes of static thread-local storage (glibc).
 */
struct thread {
	struct record *published;
	uint32_t pad; /* aligns the attributes to 8 bytes */
	struct record near;
	uint8_t near_attributes[NEAR_ATTRIBUTES];
	struct record *far; /* owned; NULL until needed */
};
_Static_assert(offsetof(struct thread, near) == 12, "CONTEXT_OTEL_BEHIND of abi/context.h");

static _Thread_local struct thread threads_own __attribute__((used));
/*
 * The name is part of the protocol: readers find it in the dynamic symbols and may check its size.
 */
extern EXPORT _Thread_local struct record *otel_thread_ctx_v1 __attribute__((alias("threads_own")));
__asm__(".size otel_thread_ctx_v1, 8");

/* A library uses the exported name, so that a relocation has its address. */
static inline struct thread *this_thread(void)
{
#if defined(__PIC__) && !defined(__PIE__)
	void *t = &otel_thread_ctx_v1;

	/* Hides from the compiler that the object is larger than a pointer. */
	__asm__("" : "+r"(t));
	return t;
#else
	return &threads_own;
#endif
}

static pthread_key_t key_of_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static void thread_ends(void *far)
{
	struct thread *t = this_thread();

	if (t->published == far)
		t->published = NULL;
	t->far = NULL;
	atomic_signal_fence(memory_order_seq_cst);
	free(far);
}

static void fork_child(void);

static void start(void)
{
	have_key = pthread_key_create(&key_of_end, thread_ends) == 0;
	(void)pthread_atfork(NULL, NULL, fork_child);
}

EXPORT void culprit_context_enter(const uint8_t trace_id[16], const uint8_t span_id[8],
				  uint8_t flags)
{
	struct thread *t = this_thread();
	struct record *r = &t->near;

	r->valid = 0;
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(r->trace_id, trace_id, sizeof(r->trace_id));
	memcpy(r->span_id, span_id, sizeof(r->span_id));
	r->flags = flags;
	r->n_attributes = 0;
	atomic_signal_fence(memory_order_seq_cst);
	r->valid = 1;
	atomic_signal_fence(memory_order_seq_cst);
	t->published = r;
}

EXPORT void culprit_context_leave(void)
{
	this_thread()->published = NULL;
}

/* Moves the record to the heap, with room for all attributes. NULL: out of memory. */
static struct record *move_to_heap(struct thread *t)
{
	struct record *r = t->far;

	if (!r) {
		(void)pthread_once(&once, start);
		r = calloc(1, sizeof(*r) + MAX_ATTRIBUTES);
		if (!r || !have_key || pthread_setspecific(key_of_end, r) != 0) {
			free(r);
			return NULL;
		}
		t->far = r;
	}
	memcpy(r, &t->near, sizeof(t->near));
	memcpy(r + 1, t->near_attributes, t->near.n_attributes);
	atomic_signal_fence(memory_order_seq_cst);
	t->published = r;
	return r;
}

static atomic_int n_keys;

EXPORT int culprit_context_attribute(int key, const char *value, size_t n)
{
	struct thread *t = this_thread();
	struct record *r = t->published;
	uint8_t *at;

	if (!r)
		return -ENOENT;
	if (key < 0 || key >= n_keys || n > 255)
		return -EINVAL;
	if (r->n_attributes + n + 2 > MAX_ATTRIBUTES)
		return -ENOSPC;
	if (r == &t->near && r->n_attributes + n + 2 > NEAR_ATTRIBUTES) {
		r = move_to_heap(t);
		if (!r)
			return -ENOMEM;
	}
	at = (uint8_t *)(r + 1) + r->n_attributes;
	at[0] = (uint8_t)key;
	at[1] = (uint8_t)n;
	memcpy(at + 2, value, n);
	atomic_signal_fence(memory_order_seq_cst);
	r->n_attributes = (uint16_t)(r->n_attributes + n + 2);
	return 0;
}

/* ---- the process ---- */

struct header {
	char signature[8];
	uint32_t version, n;
	_Atomic uint64_t published;
	_Atomic uint64_t message;
};
_Static_assert(sizeof(struct header) == 32, "OTEP 4719");

static struct {
	pthread_mutex_t lock;
	struct header *header;
	uint8_t *message; /* owned; what header->message points to */
	size_t n_message;
	char **names, **values;
	size_t n;
	char *keys[MAX_KEYS];
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A protobuf message being written; n keeps counting when the buffer is full. */
struct message {
	uint8_t *bytes;
	size_t n, max;
};

static void put_bytes(struct message *m, const void *bytes, size_t n)
{
	if (m->n <= m->max && n <= m->max - m->n)
		memcpy(m->bytes + m->n, bytes, n);
	m->n += n;
}

static void put_number(struct message *m, uint64_t v)
{
	uint8_t byte;

	for (; v > 127; v >>= 7) {
		byte = (uint8_t)(v | 128);
		put_bytes(m, &byte, 1);
	}
	byte = (uint8_t)v;
	put_bytes(m, &byte, 1);
}

static size_t number_bytes(uint64_t v)
{
	size_t n = 1;

	for (; v > 127; v >>= 7)
		n++;
	return n;
}

/* Size of a length-delimited field of n bytes with tag and length. */
static size_t field_bytes(size_t n)
{
	return 1 + number_bytes(n) + n;
}

static void put_head(struct message *m, unsigned field, size_t n)
{
	put_number(m, field << 3 | 2);
	put_number(m, n);
}

static void put_text(struct message *m, unsigned field, const char *text)
{
	put_head(m, field, strlen(text));
	put_bytes(m, text, strlen(text));
}

/* KeyValue { key = 1; AnyValue value = 2 { string_value = 1 } } as field number `field`. */
static size_t pair_bytes(const char *name, const char *value)
{
	return field_bytes(strlen(name)) + field_bytes(field_bytes(strlen(value)));
}

static void put_pair(struct message *m, unsigned field, const char *name, const char *value)
{
	put_head(m, field, pair_bytes(name, value));
	put_text(m, 1, name);
	put_head(m, 2, field_bytes(strlen(value)));
	put_text(m, 1, value);
}

/*
 * Writes the names of the keys: AnyValue { ArrayValue array_value = 5 { repeated AnyValue values =
 * 1 } }
 */
static void put_keys(struct message *m, size_t n)
{
	static const char name[] = "threadlocal.attribute_key_map";
	size_t values = 0;

	for (size_t i = 0; i < n; i++)
		values += field_bytes(field_bytes(strlen(process.keys[i])));
	put_head(m, 2, field_bytes(strlen(name)) + field_bytes(field_bytes(values)));
	put_text(m, 1, name);
	put_head(m, 2, field_bytes(values));
	put_head(m, 5, values);
	for (size_t i = 0; i < n; i++) {
		put_head(m, 1, field_bytes(strlen(process.keys[i])));
		put_text(m, 1, process.keys[i]);
	}
}

/* ProcessContext { Resource resource = 1 { KeyValue attributes = 1 }; KeyValue attributes = 2 } */
static void put_process(struct message *m)
{
	size_t resource = 0;

	for (size_t i = 0; i < process.n; i++)
		resource += field_bytes(pair_bytes(process.names[i], process.values[i]));
	put_head(m, 1, resource);
	for (size_t i = 0; i < process.n; i++)
		put_pair(m, 1, process.names[i], process.values[i]);
	put_pair(m, 2, "threadlocal.schema_version", SCHEMA);
	put_keys(m, (size_t)n_keys);
}

/*
 * A page that a forked child does not inherit: otherwise readers would take the two processes for
 * one.
 */
static struct header *make_page(void)
{
	size_t n = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	void *page = MAP_FAILED;

	if (fd < 0)
		fd = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd >= 0 && ftruncate(fd, (off_t)n) == 0)
		page = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (page == MAP_FAILED)
		page = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return NULL;
	(void)madvise(page, n, MADV_DONTFORK);
	return page;
}

static void announce(struct header *h, uint64_t before)
{
	struct timespec t = {};
	uint64_t now;

	(void)clock_gettime(CLOCK_BOOTTIME, &t);
	now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store(&h->published, now > before ? now : before + 1);
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, (unsigned long)h,
		    (unsigned long)sysconf(_SC_PAGESIZE), (unsigned long)"OTEL_CTX");
}

/* Publishes a message of n bytes, which becomes process.message. The caller holds the lock. */
static int publish(uint8_t *bytes, size_t n)
{
	struct header *h = process.header ? process.header : make_page();
	uint64_t before;

	if (!h)
		return -ENOMEM;
	before = atomic_load(&h->published);
	atomic_store(&h->published, 0);
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(h->signature, "OTEL_CTX", sizeof(h->signature));
	h->version = 2;
	h->n = (uint32_t)n;
	atomic_store(&h->message, (uint64_t)(uintptr_t)bytes);
	announce(h, before);
	process.header = h;
	return 0;
}

static int publish_all(void)
{
	struct message m = {.max = MAX_MESSAGE};
	uint8_t *old = process.message;
	int r;

	m.bytes = malloc(MAX_MESSAGE);
	if (!m.bytes)
		return -ENOMEM;
	put_process(&m);
	r = m.n > m.max ? -E2BIG : publish(m.bytes, m.n);
	if (r < 0) {
		free(m.bytes);
		return r;
	}
	process.message = m.bytes;
	process.n_message = m.n;
	free(old);
	return 0;
}

/*
 * The child has inherited everything except the page. Only async-signal-safe calls are allowed
 * here.
 */
static void fork_child(void)
{
	(void)pthread_mutex_init(&process.lock, NULL);
	process.header = NULL;
	if (process.message)
		(void)publish(process.message, process.n_message);
}

static void free_texts(char **texts, size_t n)
{
	for (size_t i = 0; texts && i < n; i++)
		free(texts[i]);
	free(texts);
}

static char **copy_texts(const char *const *texts, size_t n)
{
	char **copy = calloc(n + 1, sizeof(*copy));

	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(texts[i]);
		if (!copy[i]) {
			free_texts(copy, n);
			return NULL;
		}
	}
	return copy;
}

EXPORT int culprit_context_process(const char *const *names, const char *const *values, size_t n)
{
	char **old_names, **old_values, **new_names = copy_texts(names, n),
					**new_values = copy_texts(values, n);
	size_t old_n;
	int r = new_names && new_values ? 0 : -ENOMEM;

	(void)pthread_once(&once, start);
	pthread_mutex_lock(&process.lock);
	old_names = process.names;
	old_values = process.values;
	old_n = process.n;
	if (r == 0) {
		process.names = new_names;
		process.values = new_values;
		process.n = n;
		r = publish_all();
	}
	if (r < 0) {
		process.names = old_names;
		process.values = old_values;
		process.n = old_n;
		old_names = new_names;
		old_values = new_values;
		old_n = n;
	}
	pthread_mutex_unlock(&process.lock);
	free_texts(old_names, old_n);
	free_texts(old_values, old_n);
	return r;
}

/* Under the lock. */
static int add_key(const char *name)
{
	int n = n_keys, r;

	for (int i = 0; i < n; i++)
		if (!strcmp(process.keys[i], name))
			return i;
	if (n == MAX_KEYS)
		return -ENOSPC;
	process.keys[n] = strdup(name);
	if (!process.keys[n])
		return -ENOMEM;
	n_keys = n + 1;
	r = publish_all();
	if (r < 0) {
		n_keys = n;
		free(process.keys[n]);
	}
	return r < 0 ? r : n;
}

EXPORT int culprit_context_key(const char *name)
{
	int r;

	(void)pthread_once(&once, start);
	pthread_mutex_lock(&process.lock);
	r = add_key(name);
	pthread_mutex_unlock(&process.lock);
	return r;
}
