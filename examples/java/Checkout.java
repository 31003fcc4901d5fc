// SPDX-License-Identifier: Apache-2.0

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A server that creates spans with OpenTelemetry's SDK: GET /checkout checks the order, prices it in a
 * span of its own, and has a thread of a pool render the page.
 *
 * <pre>
 * mvn -q compile dependency:copy-dependencies -DoutputDirectory=target/lib
 * OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 java -cp 'target/classes:target/lib/*' Checkout 8080
 * </pre>
 *
 * It prints a line for each finished span: trace, span, name, 0.
 */
public class Checkout {
    static final ExecutorService renderers = Context.taskWrapping(Executors.newFixedThreadPool(2));
    static Tracer tracer;
    static volatile long sink;

    static void burn(int rounds) {
        for (int i = 0; i < rounds; i++)
            sink += (long) i * i;
    }

    static void work_check() { burn(500000); }
    static void work_price() { burn(1000000); }
    static void work_render() { burn(1000000); }
    static void idle_work() { burn(300000); } // for no span

    static void within(SpanBuilder builder, String name, Runnable work) {
        Span span = builder.startSpan();

        try (Scope s = span.makeCurrent()) {
            work.run();
        } finally {
            System.out.printf("%s %s %s 0%n", span.getSpanContext().getTraceId(),
                    span.getSpanContext().getSpanId(), name);
            span.end();
        }
    }

    static void checkout() {
        within(tracer.spanBuilder("check").setSpanKind(SpanKind.SERVER), "check", () -> {
            work_check();
            within(tracer.spanBuilder("price"), "price", Checkout::work_price);
            work_check(); // for the request's span again
            try {
                renderers.submit(() -> within(tracer.spanBuilder("render"), "render", Checkout::work_render)).get();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        });
        idle_work();
    }

    static void answer(HttpExchange e) throws IOException {
        try (e) {
            checkout();
            e.sendResponseHeaders(200, 3);
            e.getResponseBody().write("ok\n".getBytes());
        }
    }

    public static void main(String[] args) throws IOException {
        Attributes service = Attributes.builder().put("service.name", "checkout-java")
                .put("service.version", "1.0").build();
        String endpoint = System.getenv().getOrDefault("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        SdkTracerProvider provider = SdkTracerProvider.builder().setResource(Resource.create(service))
                .addSpanProcessor(BatchSpanProcessor.builder(
                        OtlpHttpSpanExporter.builder().setEndpoint(endpoint + "/v1/traces").build()).build())
                .build();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 64);

        CulpritContext.install(service);
        tracer = provider.get("checkout");
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/checkout", Checkout::answer);
        server.start();
    }
}
