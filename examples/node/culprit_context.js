// SPDX-License-Identifier: Apache-2.0

// Publishes OpenTelemetry's current span with libculprit-context for the thread that runs JavaScript:
//
//	const { CulpritContextManager } = require('./culprit_context');
//	provider.register({ contextManager: new CulpritContextManager(attributes) });
//
// It is a context manager, which OpenTelemetry calls when a function runs with a span. Asynchronous
// hooks cover callbacks that run later, which belong to the span that was current when they were
// created. Such hooks make every promise slower (see doc/context.md); @datadog/pprof publishes
// without them, from within V8.
const { createHook } = require('node:async_hooks');
const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks');
const { trace, isSpanContextValid } = require('@opentelemetry/api');
const koffi = require('koffi');

const lib = koffi.load(process.env.CULPRIT_CONTEXT || 'libculprit-context.so.0');
const publish = lib.func('int culprit_context_process(const char **names, const char **values, size_t n)');
const enter = lib.func('void culprit_context_enter(const uint8_t *trace, const uint8_t *span, uint8_t flags)');
const leave = lib.func('void culprit_context_leave()');

// The ids of a span do not change, so their bytes are cached.
const bytes = new WeakMap();
let published; // span context, or undefined

function publishSpan(context) {
  const span = trace.getSpanContext(context);
  if (span === published)
    return;
  published = span;
  if (!span || !isSpanContextValid(span)) {
    leave();
    return;
  }
  let ids = bytes.get(span);
  if (!ids)
    bytes.set(span, ids = [Buffer.from(span.traceId, 'hex'), Buffer.from(span.spanId, 'hex')]);
  enter(ids[0], ids[1], span.traceFlags);
}

class CulpritContextManager extends AsyncLocalStorageContextManager {
  constructor(attributes = {}) {
    super();
    publish(Object.keys(attributes), Object.values(attributes).map(String), Object.keys(attributes).length);
    const now = () => publishSpan(this.active());
    this.hook = createHook({ before: now, after: now });
  }

  with(context, fn, thisArg, ...args) {
    const outer = this.active();
    try {
      return super.with(context, (...a) => {
        publishSpan(context);
        return fn.apply(thisArg, a);
      }, undefined, ...args);
    } finally {
      publishSpan(outer);
    }
  }

  enable() {
    this.hook.enable();
    return super.enable();
  }

  disable() {
    this.hook.disable();
    leave();
    return super.disable();
  }
}

module.exports = { CulpritContextManager };
