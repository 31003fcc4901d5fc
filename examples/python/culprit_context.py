# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry's current span, said by libculprit-context for each thread: install this package and
run the program, as it is, with OTEL_PYTHON_CONTEXT=culprit.

It stands where OpenTelemetry keeps what is current (its entry point opentelemetry_context), so that
it hears of each change. Tasks of asyncio change it behind everybody's back: not for those.
"""

import ctypes
import os

from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext


def texts(values):
    return (ctypes.c_char_p * len(values))(*(v.encode() for v in values))


class Context(ContextVarsRuntimeContext):
    def __init__(self):
        super().__init__()
        # A PyDLL keeps the interpreter's lock: these calls are shorter than giving it back would be.
        lib = ctypes.PyDLL(os.environ.get("CULPRIT_CONTEXT", "libculprit-context.so.0"))
        self.enter, self.leave = lib.culprit_context_enter, lib.culprit_context_leave
        self.enter.restype = self.leave.restype = None
        self.enter.argtypes = ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint8
        self.publish_process(lib)

    @staticmethod
    def publish_process(lib):
        """By the environment, as the SDK does."""
        said = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        attributes = dict(pair.split("=", 1) for pair in said.split(",") if "=" in pair)
        if name := os.environ.get("OTEL_SERVICE_NAME"):
            attributes["service.name"] = name
        lib.culprit_context_process(texts(attributes.keys()), texts(attributes.values()),
                                    ctypes.c_size_t(len(attributes)))

    def say(self, context):
        from opentelemetry.trace import get_current_span # it makes this object when it is imported

        span = get_current_span(context).get_span_context()
        if span.is_valid:
            self.enter(span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big"),
                       span.trace_flags)
        else:
            self.leave()

    def attach(self, context):
        token = super().attach(context)
        self.say(context)
        return token

    def detach(self, token):
        super().detach(token)
        self.say(self.get_current())
