/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server whose threads publish their spans with libculprit-context: GET /checkout checks the
 * order, prices it in a span of its own, and has a thread of a pool render the page. There is no
 * OpenTelemetry SDK for C: this program creates the ids and sends the spans as OTLP in JSON.
 *
 *	cc -O2 -g checkout.c -o checkout -pthread \
 *		$(pkg-config --cflags --libs culprit-context libmicrohttpd libcurl)
 *	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 ./checkout 8080
 *
 * It prints a line for each finished span: trace, span, name, thread.
 */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <culprit_context.h>

#define THREADS 4
#define RENDERERS 2

struct span {
	uint8_t trace[16], id[8], parent[8];
	uint64_t begin_ns;
	const struct span *outer; /* NULL: this is the request's span */
	const char *what;
};

/* ---- spans ---- */

static char traces_url[256];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Publishes this span as the one that the thread works for. */
static void begin_span(struct span *s, const struct span *outer, const char *what)
{
	*s = (struct span){.begin_ns = now_ns(), .outer = outer, .what = what};
	if (outer) {
		memcpy(s->trace, outer->trace, sizeof(s->trace));
		memcpy(s->parent, outer->id, sizeof(s->parent));
	} else if (getrandom(s->trace, sizeof(s->trace), 0) < 0) {
		abort();
	}
	if (getrandom(s->id, sizeof(s->id), 0) < 0)
		abort();
	culprit_context_enter(s->trace, s->id, 1);
}

static const char *hex(const uint8_t *from, size_t n, char *to)
{
	for (size_t i = 0; i < n; i++)
		snprintf(to + 2 * i, 3, "%02x", from[i]);
	return to;
}

static size_t ignore(char *data, size_t size, size_t n, void *arg)
{
	return size * n;
}

/*
 * Sends spans one at a time, to keep the example short; a real exporter sends batches from a thread
 * of its own.
 */
static void send_span(const struct span *s, const char *trace, const char *id)
{
	static _Thread_local CURL *curl; /* keeps its connection until the process ends */
	static _Thread_local struct curl_slist *headers;
	char body[1024], parent[17];

	if (!curl) {
		curl = curl_easy_init();
		headers = curl_slist_append(NULL, "Content-Type: application/json");
	}
	snprintf(body, sizeof(body),
		 "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\","
		 "\"value\":{\"stringValue\":\"checkout-c\"}}]},\"scopeSpans\":[{\"spans\":[{"
		 "\"traceId\":\"%s\",\"spanId\":\"%s\",\"parentSpanId\":\"%s\",\"name\":\"%s\","
		 "\"kind\":%d,\"startTimeUnixNano\":\"%" PRIu64 "\",\"endTimeUnixNano\":"
		 "\"%" PRIu64 "\",\"status\":{}}]}]}]}",
		 trace, id, s->outer ? hex(s->parent, 8, parent) : "", s->what, s->outer ? 1 : 2,
		 s->begin_ns, now_ns());
	curl_easy_setopt(curl, CURLOPT_URL, traces_url);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_COPYPOSTFIELDS, body);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 2000L);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	if (curl_easy_perform(curl) != CURLE_OK)
		fputs("checkout: a span was not sent\n", stderr);
}

/* Ends a span: the thread works for `back` again, or for none if it is NULL. */
static void end_span(const struct span *s, const struct span *back)
{
	char trace[33], id[17];

	if (back)
		culprit_context_enter(back->trace, back->id, 1);
	else
		culprit_context_leave();
	printf("%s %s %s %d\n", hex(s->trace, 16, trace), hex(s->id, 8, id), s->what,
	       (int)gettid());
	if (traces_url[0])
		send_span(s, trace, id);
}

/* ---- what it does ---- */

static volatile uint64_t sink;

#define WORK(name, rounds)                                                                         \
	static __attribute__((noinline)) void name(void)                                           \
	{                                                                                          \
		for (uint64_t i = 0; i < (rounds); i++)                                            \
			sink += i * i;                                                             \
	}
WORK(work_check, 600000)
WORK(work_price, 1000000)
WORK(work_render, 1200000)
WORK(idle_work, 300000) /* for no span */

/* An order that waits until another thread has rendered its page. */
struct order {
	const struct span *request;
	struct order *next;
	bool done;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake, done;
	struct order *first;
} orders = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};

static void *render(void *arg)
{
	for (;;) {
		struct order *o;
		struct span s;

		pthread_mutex_lock(&orders.lock);
		while (!orders.first)
			pthread_cond_wait(&orders.wake, &orders.lock);
		o = orders.first;
		orders.first = o->next;
		pthread_mutex_unlock(&orders.lock);
		begin_span(&s, o->request, "render");
		work_render();
		end_span(&s, NULL);
		pthread_mutex_lock(&orders.lock);
		o->done = true;
		pthread_cond_broadcast(&orders.done);
		pthread_mutex_unlock(&orders.lock);
		idle_work();
	}
	return arg;
}

static void hand_over(struct order *o)
{
	pthread_mutex_lock(&orders.lock);
	o->next = orders.first;
	orders.first = o;
	pthread_cond_signal(&orders.wake);
	while (!o->done)
		pthread_cond_wait(&orders.done, &orders.lock);
	pthread_mutex_unlock(&orders.lock);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *data, size_t *n,
			      void **state)
{
	struct span request, price;
	struct order order = {.request = &request};
	struct MHD_Response *r;
	enum MHD_Result sent;

	if (strcmp(url, "/checkout") != 0)
		return MHD_NO;
	begin_span(&request, NULL, "check");
	work_check();
	begin_span(&price, &request, "price");
	work_price();
	end_span(&price, &request);
	work_check(); /* for the request's span again */
	hand_over(&order);
	end_span(&request, NULL);
	idle_work();
	r = MHD_create_response_from_buffer(3, "ok\n", MHD_RESPMEM_PERSISTENT);
	sent = MHD_queue_response(c, 200, r);
	MHD_destroy_response(r);
	return sent;
}

int main(int argc, char **argv)
{
	const char *names[] = {"service.name", "service.version"};
	const char *values[] = {"checkout-c", "1.0"};
	const char *endpoint = getenv("OTEL_EXPORTER_OTLP_ENDPOINT");
	uint16_t port = (uint16_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 8080);
	struct MHD_Daemon *d;
	pthread_t t;

	if (endpoint)
		snprintf(traces_url, sizeof(traces_url), "%s/v1/traces", endpoint);
	setvbuf(stdout, NULL, _IOLBF, 0);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	culprit_context_process(names, values, 2);
	for (int i = 0; i < RENDERERS; i++)
		if (pthread_create(&t, NULL, render, NULL) != 0)
			return 1;
	d = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, port, NULL, NULL, answer, NULL,
			     MHD_OPTION_THREAD_POOL_SIZE, THREADS, MHD_OPTION_END);
	if (!d) {
		perror("checkout");
		return 1;
	}
	for (;;)
		pause();
}
