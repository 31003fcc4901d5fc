// SPDX-License-Identifier: Apache-2.0

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.Pointer;
import com.sun.jna.StringArray;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextStorage;
import io.opentelemetry.context.Scope;

/*
 * Publishes OpenTelemetry's current span with libculprit-context for each thread. It wraps the
 * place where OpenTelemetry keeps the current context, so that it sees each change; install it
 * before any other use of OpenTelemetry. Not for virtual threads, whose span would be published for
 * their carrier.
 */
public final class CulpritContext implements ContextStorage {
    static {
        String library = System.getenv("CULPRIT_CONTEXT");
        Native.register(NativeLibrary.getInstance(library != null ? library : "libculprit-context.so.0"));
    }

    private static native int culprit_context_process(Pointer names, Pointer values, long n);
    private static native void culprit_context_enter(byte[] trace, byte[] span, byte flags);
    private static native void culprit_context_leave();

    private final ContextStorage storage;

    private CulpritContext(ContextStorage storage) {
        this.storage = storage;
    }

    public static void install(Attributes resource) {
        String[] names = resource.asMap().keySet().stream().map(k -> k.getKey()).toArray(String[]::new);
        String[] values = resource.asMap().values().stream().map(Object::toString).toArray(String[]::new);

        culprit_context_process(new StringArray(names), new StringArray(values), names.length);
        ContextStorage.addWrapper(CulpritContext::new);
    }

    private static void say(Context context) {
        SpanContext span = Span.fromContext(context == null ? Context.root() : context).getSpanContext();

        if (span.isValid())
            culprit_context_enter(span.getTraceIdBytes(), span.getSpanIdBytes(), span.getTraceFlags().asByte());
        else
            culprit_context_leave();
    }

    @Override
    public Scope attach(Context context) {
        Scope scope = storage.attach(context);

        say(context);
        return () -> {
            scope.close();
            say(storage.current());
        };
    }

    @Override
    public Context current() {
        return storage.current();
    }
}
