/* SPDX-License-Identifier: Apache-2.0 */
/*
 *	soak_agents URL FROM_SECONDS MINUTES ROWS
 *
 * Sends a day of 100 agents to a server, as OTLP over HTTP, as fast as the server accepts it
 * (tests/server/test_soak.py). A real agent sends every 5 s. Here one request has all that an agent
 * sends in MINUTES minutes: ROWS rows, each with the time of its 5 seconds. An agent is a host with
 * five of 20 services; stacks are Zipf distributed over 3,000 of a service, 20 frames deep. Every
 * six hours a tenth of all functions changes, as after a deployment.
 *
 * Four threads send for 25 agents each, in order of time, and repeat a request that the server
 * refuses. Prints "step N" for each step of time, and at the end the sums of values by hour (JSON).
 */
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "otlp/otlp.h"
#include "profile/profile.h"

#define AGENTS 100
#define THREADS 4
#define SERVICES 20
#define PER_AGENT 5
#define STACKS 3000
#define DEPTH 20
#define DAY_S 86400
#define PERIOD_NS 50000000

static struct {
	const char *url;
	u64 from_s;
	u32 step_s, rows;
} arguments;

struct sender {
	pthread_t thread;
	u32 first; /* the thread's first agent */
	u64 dice;
	CURL *curl;
	u64 hours[DAY_S / 3600];
	u64 requests, again, rows, bytes;
	bool failed;
};

static u64 roll(u64 *dice)
{
	*dice ^= *dice << 13;
	*dice ^= *dice >> 7;
	*dice ^= *dice << 17;
	return *dice;
}

/* Roughly Zipf: as many values between 1 and 2 as between 1000 and 2000. */
static u32 zipf(u64 *dice)
{
	u32 bits = (u32)(roll(dice) >> 32) % 12;

	return (u32)((1u << bits) + (roll(dice) >> 32) % (1u << bits)) % STACKS;
}

static u32 add_text(struct profile *p, const char *s)
{
	u32 id = 0;

	profile_add_string(p, s, strlen(s), &id);
	return id;
}

static u32 add_frame(struct profile *p, u32 service, u32 function, u32 age)
{
	struct profile_frame f = {.kind = FRAME_NATIVE, .address = 0x1000 + function * 32ULL};
	struct profile_function fn = {};
	struct profile_mapping m = {};
	char text[80];
	u32 id = 0;

	f.line = function % 10 == age % 10 ? 100 + age : 7;
	snprintf(text, sizeof(text), "/opt/service%u/bin/server", service);
	m.path = add_text(p, text);
	snprintf(text, sizeof(text), "%08x%08x", service * 2654435761u, service);
	m.build_id = add_text(p, text);
	snprintf(text, sizeof(text), "service%u::Handler%u::step_%u", service, function % 50,
		 function);
	fn.name = add_text(p, text);
	fn.system_name = fn.name;
	snprintf(text, sizeof(text), "service%u/handler%u.cc", service, function % 50);
	fn.file = add_text(p, text);
	profile_add_function(p, &fn, &f.function);
	profile_add_mapping(p, &m, &f.mapping);
	profile_add_frame(p, &f, &id);
	return id;
}

static u32 add_stack(struct profile *p, u32 service, u32 n, u32 age)
{
	u32 frames[DEPTH], stack = 0;

	for (u32 i = 0; i < DEPTH; i++)
		frames[i] = add_frame(
			p, service, (u32)(hash_u64(n / (1u << i / 2) * 32 + i) % (2000 / (i + 1))),
			age);
	profile_add_stack(p, frames, DEPTH, &stack);
	return stack;
}

static u32 add_thread(struct profile *p, u32 agent, u32 service)
{
	struct profile_label labels[3];
	struct profile_thread t = {.pid = 1000 + service, .tid = 1000 + service};
	char text[32];
	u32 id = 0;

	snprintf(text, sizeof(text), "service-%u", service);
	t.comm = add_text(p, text);
	labels[0] = (struct profile_label){add_text(p, "service.name"), t.comm};
	snprintf(text, sizeof(text), "host-%u", agent);
	labels[1] = (struct profile_label){add_text(p, "host.name"), add_text(p, text)};
	labels[2] = (struct profile_label){add_text(p, "process.executable.name"),
					   add_text(p, "server")};
	profile_add_resource(p, labels, 3, &t.resource);
	profile_add_thread(p, &t, &id);
	return id;
}

static struct profile *make(struct sender *s, u32 agent, u32 at_s)
{
	struct profile *p = profile_create();
	u32 threads[PER_AGENT];

	profile_add_type(p, "cpu", "nanoseconds");
	p->period_name = add_text(p, "cpu");
	p->period_unit = add_text(p, "nanoseconds");
	p->period = PERIOD_NS;
	p->time_ns = (arguments.from_s + at_s) * 1000000000;
	p->duration_ns = arguments.step_s * 1000000000ULL;
	for (u32 i = 0; i < PER_AGENT; i++)
		threads[i] = add_thread(p, agent, (agent + i * 3) % SERVICES);
	for (u32 i = 0; i < arguments.rows; i++) {
		u32 which = (u32)roll(&s->dice) % PER_AGENT;
		u32 second = at_s + (u32)(roll(&s->dice) >> 40) % arguments.step_s / 5 * 5;
		s64 value = (s64)(1 + (roll(&s->dice) >> 40) % 3) * PERIOD_NS;

		profile_add_sample(
			p, (arguments.from_s + second) * 1000000000, threads[which],
			add_stack(p, (agent + which * 3) % SERVICES, zipf(&s->dice), at_s / 21600),
			&value);
		s->hours[second / 3600] += (u64)value;
	}
	s->rows += arguments.rows;
	return p;
}

static size_t discard(char *data, size_t size, size_t n, void *userdata)
{
	return size * n;
}

/* Sends a request, and repeats the same bytes until the server accepts them. */
static bool send_body(struct sender *s, const struct str *body)
{
	long status = 0;

	curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, body->data);
	curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE, (long)body->n);
	for (u32 tries = 0; tries < 600; tries++) {
		if (curl_easy_perform(s->curl) == CURLE_OK)
			curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
		if (status == 200)
			return true;
		if (status && status != 503)
			break;
		s->again++;
		usleep(100000);
	}
	fprintf(stderr, "soak_agents: a request was answered with %ld\n", status);
	return false;
}

static bool send_one(struct sender *s, u32 agent, u32 at_s)
{
	_cleanup_profile_ struct profile *p = make(s, agent, at_s);
	_cleanup_str_ struct str body = {};
	u8 id[16] = {};
	u64 parts[2] = {agent + 1, at_s + 1};
	struct diag d = {};

	memcpy(id, parts, sizeof(id));
	if (otlp_profiles_encode(p, id, &body, &d) < 0) {
		fprintf(stderr, "soak_agents: %s\n", d.text);
		return false;
	}
	s->requests++;
	s->bytes += body.n;
	return send_body(s, &body);
}

static void *send_all(void *arg)
{
	struct sender *s = arg;
	struct curl_slist *headers =
		curl_slist_append(NULL, "Content-Type: application/x-protobuf");

	s->curl = curl_easy_init();
	curl_easy_setopt(s->curl, CURLOPT_URL, arguments.url);
	curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, discard);
	curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(s->curl, CURLOPT_TIMEOUT, 120L);
	for (u32 at = 0; at < DAY_S && !s->failed; at += arguments.step_s) {
		for (u32 i = 0; i < AGENTS / THREADS && !s->failed; i++)
			s->failed = !send_one(s, s->first + i, at);
		if (!s->first) {
			printf("step %u\n", at / arguments.step_s);
			fflush(stdout);
		}
	}
	curl_easy_cleanup(s->curl);
	curl_slist_free_all(headers);
	return NULL;
}

static void print_sums(const struct sender *senders)
{
	u64 requests = 0, again = 0, rows = 0, bytes = 0;

	for (u32 i = 0; i < THREADS; i++) {
		requests += senders[i].requests;
		again += senders[i].again;
		rows += senders[i].rows;
		bytes += senders[i].bytes;
	}
	printf("{\"requests\": %llu, \"again\": %llu, \"rows\": %llu, \"bytes\": %llu, \"hours\": [",
	       requests, again, rows, bytes);
	for (u32 h = 0; h < DAY_S / 3600; h++) {
		u64 sum = 0;

		for (u32 i = 0; i < THREADS; i++)
			sum += senders[i].hours[h];
		printf("%s%llu", h ? ", " : "", sum);
	}
	puts("]}");
}

int main(int argc, char **argv)
{
	static struct sender senders[THREADS];
	bool failed = false;

	if (argc != 5) {
		fprintf(stderr, "usage: soak_agents URL FROM_SECONDS MINUTES ROWS\n");
		return 2;
	}
	arguments.url = argv[1];
	arguments.from_s = strtoull(argv[2], NULL, 10);
	arguments.step_s = (u32)strtoul(argv[3], NULL, 10) * 60;
	arguments.rows = (u32)strtoul(argv[4], NULL, 10);
	curl_global_init(CURL_GLOBAL_DEFAULT);
	for (u32 i = 0; i < THREADS; i++) {
		senders[i].first = i * (AGENTS / THREADS);
		senders[i].dice = 88172645463325252ULL + i;
		if (pthread_create(&senders[i].thread, NULL, send_all, &senders[i]) != 0)
			return 1;
	}
	for (u32 i = 0; i < THREADS; i++) {
		pthread_join(senders[i].thread, NULL);
		failed |= senders[i].failed;
	}
	print_sums(senders);
	return failed;
}
