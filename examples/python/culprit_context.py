# SPDX-License-Identifier: Apache-2.0
"""Publishes OpenTelemetry's current span with libculprit-context for each thread: install this package
and run the unmodified program with OTEL_PYTHON_CONTEXT=culprit.

It replaces the object in which OpenTelemetry keeps the current context (entry point
opentelemetry_context), so that it sees each change. Not for asyncio, whose tasks change the current
context without a call.
"""

import ctypes
import os

from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext


def texts(values):
    return (ctypes.c_char_p * len(values))(*(v.encode() for v in values))


class Context(ContextVarsRuntimeContext):
    def __init__(self):
        super().__init__()
        # A PyDLL keeps the GIL: releasing it would take longer than these calls.
        lib = ctypes.PyDLL(os.environ.get("CULPRIT_CONTEXT", "libculprit-context.so.0"))
        self.enter, self.leave = lib.culprit_context_enter, lib.culprit_context_leave
        self.enter.restype = self.leave.restype = None
        self.enter.argtypes = ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint8
        self.publish_process(lib)

    @staticmethod
    def publish_process(lib):
        """Reads the resource attributes from the environment, as the SDK does."""
        resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        attributes = dict(pair.split("=", 1) for pair in resource.split(",") if "=" in pair)
        if name := os.environ.get("OTEL_SERVICE_NAME"):
            attributes["service.name"] = name
        lib.culprit_context_process(texts(attributes.keys()), texts(attributes.values()),
                                    ctypes.c_size_t(len(attributes)))

    def publish_span(self, context):
        from opentelemetry.trace import get_current_span # its import creates this object

        span = get_current_span(context).get_span_context()
        if span.is_valid:
            self.enter(span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big"),
                       span.trace_flags)
        else:
            self.leave()

    def attach(self, context):
        token = super().attach(context)
        self.publish_span(context)
        return token

    def detach(self, token):
        super().detach(token)
        self.publish_span(self.get_current())
