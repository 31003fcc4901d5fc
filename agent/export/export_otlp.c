/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP by gRPC and by HTTP. Requests are gzip-compressed. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "agent/export/export_private.h"
#include "base/buf.h"
#include "compress/compress.h"
#include "control/control.h"
#include "otlp/otlp.h"

/* gRPC servers accept 4 MiB by default; some of that is for the framing. */
#define MAX_REQUEST_BYTES (((size_t)4 << 20) - 4096)

#define MAX_ANSWER_BYTES (1U << 20)

struct grpc_frame {
	u8 compressed;
	u8 length[4]; /* big endian */
} __attribute__((packed));

static int encode(struct destination *d, const struct profile *p, struct str *out,
		  struct diag *reterr_diag)
{
	u8 id[16];

	/* Better no id than one that another profile may have. */
	if (getrandom(id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
		return otlp_profiles_encode(p, NULL, out, reterr_diag);
	return otlp_profiles_encode(p, id, out, reterr_diag);
}

static void read_response(const u8 *data, size_t n, struct export_result *ret)
{
	struct diag message = {};

	/* An unreadable response still means that the request was accepted. */
	if (otlp_profiles_read_response(data, n, &ret->rejected, &message) == 0 && message.text[0])
		diag_set(&ret->error, 0, "took it, but: %s", message.text);
}

/* ---- gRPC ---- */

static int open_grpc(struct destination *d, struct diag *reterr_diag)
{
	static const struct http_options o = {
		.path = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/"
			"Export",
		.ask_path = CONTROL_GRPC_PATH,
		.default_port = "4317",
		.content_type = "application/grpc",
		.content_encoding = "gzip",
		.grpc = true,
	};

	return http_open(d, &o, reterr_diag, (struct http **)&d->private);
}

/* Appends the message of the response, which servers compress like the request. */
static int read_message(const struct str *answer, struct str *out)
{
	struct buf b = buf_of(answer->data, answer->n), body;
	struct grpc_frame frame;
	u32 length;

	if (buf_left(&b) < sizeof(frame))
		return -EBADMSG;
	memcpy(&frame, b.pos, sizeof(frame));
	memcpy(&length, frame.length, sizeof(length));
	if (!buf_skip(&b, sizeof(frame)) || !buf_take(&b, ntohl(length), &body))
		return -EBADMSG;
	return frame.compressed
		       ? gzip_inflate(body.pos, buf_left(&body), MAX_ANSWER_BYTES, out, NULL)
		       : str_append(out, body.pos, buf_left(&body));
}

/* Puts a request into its frame. */
static bool frame_message(const u8 *data, size_t n, struct str *out, struct export_result *ret)
{
	struct grpc_frame frame = {.compressed = 1};
	u32 length = htonl((u32)n);

	memcpy(frame.length, &length, sizeof(length));
	str_append(out, &frame, sizeof(frame));
	str_append(out, data, n);
	if (!out->failed)
		return true;
	ret->outcome = EXPORT_RETRY;
	diag_set(&ret->error, -ENOMEM, "out of memory");
	return false;
}

static void send_grpc(struct destination *d, const u8 *data, size_t n, struct export_result *ret)
{
	_cleanup_str_ struct str message = {}, response = {};

	if (!frame_message(data, n, &message, ret))
		return;
	http_post(d->private, (const u8 *)message.data, message.n, ret);
	if (ret->outcome != EXPORT_SENT)
		return;
	http_grpc_result(d->private, ret);
	if (ret->outcome == EXPORT_SENT && read_message(http_answer(d->private), &response) == 0)
		read_response((const u8 *)str_get(&response), response.n, ret);
}

static void ask_grpc(struct destination *d, const u8 *data, size_t n, struct str *answer,
		     struct export_result *ret)
{
	_cleanup_str_ struct str message = {};

	if (!frame_message(data, n, &message, ret))
		return;
	http_ask(d->private, (const u8 *)message.data, message.n, ret);
	if (ret->outcome == EXPORT_SENT && read_message(http_answer(d->private), answer) < 0) {
		ret->outcome = EXPORT_REFUSED;
		diag_set(&ret->error, -EBADMSG, "answers what is not a message of gRPC");
	}
}

const struct export_ops export_otlp_grpc = {
	.scheme = "otlp",
	.open = open_grpc,
	.close = http_close,
	.encode = encode,
	.send = send_grpc,
	.ask = ask_grpc,
	.max_bytes = MAX_REQUEST_BYTES,
	.gzip = true,
};

/* ---- HTTP ---- */

static int open_http(struct destination *d, struct diag *reterr_diag)
{
	static const struct http_options o = {
		.path = "/v1development/profiles",
		.ask_path = CONTROL_GRPC_PATH,
		.default_port = "4318",
		.content_type = "application/x-protobuf",
		.content_encoding = "gzip",
	};

	return http_open(d, &o, reterr_diag, (struct http **)&d->private);
}

static void send_http(struct destination *d, const u8 *data, size_t n, struct export_result *ret)
{
	const struct str *answer;

	http_post(d->private, data, n, ret);
	answer = http_answer(d->private);
	if (ret->outcome == EXPORT_SENT)
		read_response((const u8 *)str_get(answer), answer->n, ret);
}

static void ask_http(struct destination *d, const u8 *data, size_t n, struct str *answer,
		     struct export_result *ret)
{
	const struct str *all = http_answer(d->private);

	http_ask(d->private, data, n, ret);
	if (ret->outcome == EXPORT_SENT)
		str_append(answer, all->data, all->n);
}

const struct export_ops export_otlp_http = {
	.scheme = "otlp+http",
	.open = open_http,
	.close = http_close,
	.encode = encode,
	.send = send_http,
	.ask = ask_http,
	.max_bytes = MAX_REQUEST_BYTES,
	.gzip = true,
};
