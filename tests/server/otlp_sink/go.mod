// SPDX-License-Identifier: Apache-2.0
// go.opentelemetry.io/proto/otlp has no profiles in it; the Collector's own messages are here. The
// version: see collector/go.mod.
module culprit/tests/otlp_sink

go 1.25.0

require (
	go.opentelemetry.io/collector/pdata v1.54.0
	go.opentelemetry.io/collector/pdata/pprofile v0.148.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260226221140-a57be14db171
	google.golang.org/grpc v1.79.2
)
