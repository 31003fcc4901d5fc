// SPDX-License-Identifier: Apache-2.0

// A server that creates spans with OpenTelemetry's SDK: GET /checkout checks the order, prices it in a
// span of its own, and renders the page later, while it works on other requests.
//
//	npm install
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 node checkout.js 8080
//
// It prints a line for each finished span: trace, span, name, 0.
const http = require('node:http');
const { setTimeout: sleep } = require('node:timers/promises');
const { trace, SpanKind } = require('@opentelemetry/api');
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-http');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { BatchSpanProcessor } = require('@opentelemetry/sdk-trace-base');
const { NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');
const { CulpritContextManager } = require('./culprit_context');

const attributes = { 'service.name': 'checkout-node', 'service.version': '1.0' };
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes(attributes),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())],
});
provider.register({ contextManager: new CulpritContextManager(attributes) });
const tracer = trace.getTracer('checkout');

let sink = 0;

function burn(rounds) {
  for (let i = 0; i < rounds; i++)
    sink = (sink * 31 + i) % 1000003;
}

function work_check() { burn(200000); }
function work_price() { burn(400000); }
function work_render() { burn(400000); }
function idle_work() { burn(100000); } // for no span

async function within(name, options, fn) {
  return tracer.startActiveSpan(name, options, async span => {
    try {
      return await fn();
    } finally {
      const { traceId, spanId } = span.spanContext();
      console.log(`${traceId} ${spanId} ${name} 0`);
      span.end();
    }
  });
}

async function checkout() {
  await within('check', { kind: SpanKind.SERVER }, async () => {
    work_check();
    await within('price', {}, async () => {
      work_price();
      await sleep(1); // stands for a database query; other requests run meanwhile
      work_price();
    });
    work_check(); // for the request's span again
    await Promise.all([within('render', {}, async () => {
      await new Promise(setImmediate);
      work_render();
    }), sleep(2).then(work_check)]);
  });
}

http.createServer((request, response) => {
  if (request.url !== '/checkout') {
    response.writeHead(404).end();
    return;
  }
  checkout().then(() => {
    response.end('ok\n');
    setImmediate(idle_work);
  });
}).listen(+process.argv[2], '127.0.0.1');
