/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of other servers and of older protocols, and where this server does what they ask for. */
#include <string.h>

#include "base/str.h"
#include "server/api/internal.h"

#define OTLP "OTLP profiles go to POST /v1development/profiles, traces to POST /v1/traces"
#define ZIPKIN "Zipkin's spans go to POST /api/v2/spans, as JSON; /api/v1/traces finds traces"
#define JAEGER                                                                                     \
	"Jaeger's protocols are not served: send OTLP to POST /v1/traces, or Zipkin's JSON to "    \
	"POST /api/v2/spans; /api/v1/traces finds traces"
#define PYROSCOPE                                                                                  \
	"of Pyroscope's services this server has /querier.v1.QuerierService/, "                    \
	"/push.v1.PusherService/Push and /ingest; its own API is /api/v1/openapi.json"
#define PYROSCOPE_OLD                                                                              \
	"of Pyroscope's older API this server has /render, /render-diff and /label-values; names " \
	"of labels are at POST /querier.v1.QuerierService/LabelNames, applications are the "       \
	"values of service_name (LabelValues)"
#define NOTHING "/api/v1/openapi.json lists what there is"

const char *api_elsewhere(const char *path)
{
	static const struct {
		const char *begin, *text;
	} known[] = {
		{"/v1experimental/", OTLP},
		{"/v1alpha", OTLP},
		{"/v1development/", OTLP},
		{"/v1/profiles", OTLP},
		{"/v1/trace", OTLP},
		{"/otlp/", OTLP},
		{"/opentelemetry.proto.", OTLP "; gRPC has a port of its own (--otlp-grpc)"},
		{"/api/v1/spans", ZIPKIN},
		{"/api/v2/trace", ZIPKIN},
		{"/api/v2/services", ZIPKIN},
		{"/zipkin", ZIPKIN},
		{"/api/traces", JAEGER},
		{"/api/services", JAEGER},
		{"/api/operations", JAEGER},
		{"/api/dependencies", JAEGER},
		{"/jaeger", JAEGER},
		{"/querier.v1.", PYROSCOPE},
		{"/settings.v1.", PYROSCOPE},
		{"/vcs.v1.", PYROSCOPE},
		{"/adhocprofiles.v1.", PYROSCOPE},
		{"/ingester.v1.", PYROSCOPE},
		{"/storegateway.v1.", PYROSCOPE},
		{"/pyroscope/label", PYROSCOPE_OLD},
		{"/pyroscope", PYROSCOPE},
		{"/label", PYROSCOPE_OLD},
		{"/api/apps", PYROSCOPE_OLD},
		{"/api/v1/status", PYROSCOPE},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (str_starts(path, known[i].begin))
			return known[i].text;
	return NOTHING;
}
