/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stock service of the demo: GET /stock?n=N returns N numbers, GET /inventory their sum, for
 * which it locks all shelves for half a second: purchases meanwhile wait, for culprit to find. GET
 * /parcel?items=N returns the boxes that N items need, which takes long if N is large. A thread
 * works on each request and publishes its span with libculprit-context; the span itself is sent as
 * OTLP in JSON to this machine, to the port of OTEL_EXPORTER_OTLP_ENDPOINT.
 *
 *	stock PORT
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <culprit_context.h>

#define THREADS 4
#define SHELVES 80000

struct span {
	uint8_t trace[16], parent[8], id[8];
	uint64_t begin_ns, end_ns;
	int is_root;
	const char *route;
};

static pthread_mutex_t shelves = PTHREAD_MUTEX_INITIALIZER;
static int listener, otlp_port = 4318;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int unhex(const char *text, uint8_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (sscanf(text + 2 * i, "%2hhx", &to[i]) != 1)
			return -1;
	return 0;
}

static const char *hex(const uint8_t *from, size_t n, char *to)
{
	for (size_t i = 0; i < n; i++)
		snprintf(to + 2 * i, 3, "%02x", from[i]);
	return to;
}

/* The ids in the caller's traceparent, or a new trace. */
static void begin_span(struct span *s, const char *request, const char *route)
{
	const char *p = strcasestr(request, "\ntraceparent: 00-");

	*s = (struct span){.begin_ns = now_ns(), .route = route};
	if (p)
		p += strlen("\ntraceparent: 00-");
	if (!p || strlen(p) < 52 || unhex(p, s->trace, 16) < 0 || unhex(p + 33, s->parent, 8) < 0) {
		s->is_root = 1;
		getrandom(s->trace, sizeof(s->trace), 0);
	}
	getrandom(s->id, sizeof(s->id), 0);
	culprit_context_enter(s->trace, s->id, 1);
}

static int connect_to(int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Sends one span per request, which is good enough for a demo. */
static void end_span(struct span *s)
{
	char body[1024], trace[33], id[17], parent[17];
	int fd, n;

	culprit_context_leave();
	s->end_ns = now_ns();
	n = snprintf(body, sizeof(body),
		     "{\"resourceSpans\":[{\"resource\":{\"attributes\":[{\"key\":\"service.name\","
		     "\"value\":{\"stringValue\":\"stock\"}}]},\"scopeSpans\":[{\"spans\":[{"
		     "\"traceId\":\"%s\",\"spanId\":\"%s\",\"parentSpanId\":\"%s\","
		     "\"name\":\"GET %s\",\"kind\":2,\"startTimeUnixNano\":\"%llu\","
		     "\"endTimeUnixNano\":\"%llu\",\"status\":{},\"attributes\":[{\"key\":"
		     "\"http.request.method\",\"value\":{\"stringValue\":\"GET\"}},{\"key\":"
		     "\"http.route\",\"value\":{\"stringValue\":\"%s\"}}]}]}]}]}",
		     hex(s->trace, 16, trace), hex(s->id, 8, id),
		     s->is_root ? "" : hex(s->parent, 8, parent), s->route,
		     (unsigned long long)s->begin_ns, (unsigned long long)s->end_ns, s->route);
	fd = connect_to(otlp_port);
	if (fd < 0)
		return; /* nothing receives spans */
	dprintf(fd,
		"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s",
		n, body);
	while (read(fd, body, sizeof(body)) > 0)
		;
	close(fd);
}

/* Counts the items on the shelves, inefficiently. */
static __attribute__((noinline)) unsigned count_shelf(unsigned item)
{
	unsigned long x = item + 1, found = 0;

	for (int i = 0; i < 4000; i++) {
		x = x * 6364136223846793005UL + 1442695040888963407UL;
		found += x >> 63;
	}
	return (unsigned)(found % 100);
}

/* Nobody may take anything from a shelf meanwhile. */
static __attribute__((noinline)) unsigned long take_inventory(void)
{
	unsigned long sum = 0;

	pthread_mutex_lock(&shelves);
	for (unsigned i = 0; i < SHELVES; i++)
		sum += count_shelf(i);
	pthread_mutex_unlock(&shelves);
	return sum;
}

/*
 * Puts each item into the first box that has room for it, and looks at all boxes before: fast for a
 * purchase, slow for a wholesaler's.
 */
static __attribute__((noinline)) unsigned pack_parcel(unsigned items)
{
	unsigned *room = calloc(items + 1, sizeof(*room)), boxes = 0;

	for (unsigned i = 0; room && i < items; i++) {
		unsigned size = 51 + i % 40, box = 0;

		while (box < boxes && room[box] < size)
			box++;
		if (box == boxes)
			room[boxes++] = 100;
		room[box] -= size;
	}
	free(room);
	return boxes;
}

static void answer_stock(int fd, unsigned items)
{
	size_t used = 0, cap = (size_t)items * 12 + 1;
	char *body = malloc(cap);

	pthread_mutex_lock(&shelves);
	for (unsigned i = 0; body && i < items; i++)
		used += (size_t)snprintf(body + used, cap - used, "%u\n", count_shelf(i));
	pthread_mutex_unlock(&shelves);
	dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%.*s", used,
		(int)used, body ? body : "");
	free(body);
}

static void answer_number(int fd, unsigned long number)
{
	char body[24];
	int n = snprintf(body, sizeof(body), "%lu\n", number);

	dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", n,
		body);
}

static void answer(int fd)
{
	char request[4096];
	ssize_t n = read(fd, request, sizeof(request) - 1);
	struct span span;
	unsigned items = 0;
	const char *route;

	if (n <= 0)
		return;
	request[n] = '\0';
	route = !strncmp(request, "GET /inventory ", 15) ? "/inventory"
		: !strncmp(request, "GET /parcel?", 12)	 ? "/parcel"
							 : "/stock";
	begin_span(&span, request, route);
	if (!strcmp(route, "/inventory"))
		answer_number(fd, take_inventory());
	else if (sscanf(request, "GET /parcel?items=%u", &items) == 1 && items <= 100000)
		answer_number(fd, pack_parcel(items));
	else if (sscanf(request, "GET /stock?n=%u", &items) == 1 && items <= 10000)
		answer_stock(fd, items);
	else
		dprintf(fd,
			"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
	end_span(&span);
}

static void *serve(void *arg)
{
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		answer(fd);
		close(fd);
	}
	return arg;
}

int main(int argc, char **argv)
{
	const char *names[] = {"service.name"}, *values[] = {"stock"};
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)(argc > 1 ? strtol(argv[1], NULL, 10) : 0)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *otlp = getenv("OTEL_EXPORTER_OTLP_ENDPOINT");
	pthread_t thread;
	int on = 1;

	if (otlp && strrchr(otlp, ':'))
		otlp_port = (int)strtol(strrchr(otlp, ':') + 1, NULL, 10);
	culprit_context_process(names, values, 1);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(listener, 64) < 0) {
		perror("stock");
		return 1;
	}
	for (int i = 1; i < THREADS; i++)
		if (pthread_create(&thread, NULL, serve, NULL) != 0)
			return 1;
	serve(NULL);
	return 0;
}
