/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's end of the control channel (lib/control): agents ask by gRPC, by HTTP with the same
 * message, and through the socket of `culprit up`. server/tasks has the answers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/api/internal.h"

#define PROTO "application/x-protobuf"

/* Who may write what is of one host only may ask for this host only. */
static int check_host(const char *host, struct control_request *q, struct diag *reterr_diag)
{
	if (!host || !*host || !strcmp(q->host, host))
		return 0;
	if (*q->host)
		return diag_set(reterr_diag, -EACCES,
				"this token may ask for tasks of the host %.60s only, not of %.60s",
				host, q->host);
	snprintf(q->host, sizeof(q->host), "%s", host);
	return 0;
}

int api_sync(struct api *a, const u8 *data, size_t n, const char *host, struct str *out,
	     struct diag *reterr_diag)
{
	_cleanup_control_response_ struct control_response answer = {};
	_cleanup_control_request_ struct control_request q = {};
	int r = control_request_decode(data, n, &q, reterr_diag);

	if (r == 0)
		r = check_host(host, &q, reterr_diag);
	if (r == 0)
		r = tasks_sync(a->o.tasks, &q, &answer, reterr_diag);
	if (r == 0)
		r = policies_sync(a->o.policies, &q, &answer);
	if (r == 0)
		r = measurements_sync(a->o.measurements, &q, &answer);
	if (r == 0)
		settings_sync(a->o.agent_settings, &q, &answer);
	return r < 0 ? r : control_response_encode(&answer, out);
}

int api_sync_request(struct api *a, const struct net_request *r, struct str *out,
		     struct diag *reterr_diag)
{
	_cleanup_str_ struct str own = {};
	const u8 *data;
	size_t n;
	int e = ingest_decode(a->o.ingest, r->body, r->n_body, r->content_encoding, &own, &data, &n,
			      reterr_diag);

	return e < 0 ? e : api_sync(a, data, n, r->host, out, reterr_diag);
}

static int sync_agent(struct api_call *c)
{
	if (!api_is_protobuf(c->r->content_type))
		return diag_set(&c->d, -EMEDIUMTYPE, "a SyncRequest is " PROTO);
	c->ret->content_type = str_starts(c->r->content_type, PROTO) ? PROTO : "application/proto";
	return api_sync_request(c->a, c->r, c->out, &c->d);
}

const struct api_route api_control_routes[] = {
	{"POST", CONTROL_GRPC_PATH, NET_ROLE_WRITE, API_STYLE_CONNECT, sync_agent},
	{},
};
