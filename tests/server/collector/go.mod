// SPDX-License-Identifier: Apache-2.0
// 0.148.0 is the first with the layout of opentelemetry-proto 1.10. Later ones (looked at: 0.164.0)
// need the module internal/statusutil, which the proxy does not give out here.
module culprit/tests/collector

go 1.25.0

require (
	go.opentelemetry.io/collector/component v1.54.0
	go.opentelemetry.io/collector/confmap v1.54.0
	go.opentelemetry.io/collector/confmap/provider/fileprovider v1.54.0
	go.opentelemetry.io/collector/exporter v1.54.0
	go.opentelemetry.io/collector/exporter/debugexporter v0.148.0
	go.opentelemetry.io/collector/exporter/otlpexporter v0.148.0
	go.opentelemetry.io/collector/exporter/otlphttpexporter v0.148.0
	go.opentelemetry.io/collector/otelcol v0.148.0
	go.opentelemetry.io/collector/receiver v1.54.0
	go.opentelemetry.io/collector/receiver/otlpreceiver v0.148.0
	go.opentelemetry.io/collector/service v0.148.0
)
