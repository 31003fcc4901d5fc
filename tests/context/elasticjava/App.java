// SPDX-License-Identifier: Apache-2.0

import co.elastic.apm.api.ElasticApm;
import co.elastic.apm.api.Scope;
import co.elastic.apm.api.Span;
import co.elastic.apm.api.Transaction;
import java.io.PrintWriter;

/** Transactions with a child each in a pool of threads: App SECONDS THREADS LOG. See ../spans.c. */
public class App {
    static volatile long sink;

    static void burn(long us) {
        for (long end = System.nanoTime() + us * 1000; System.nanoTime() < end; )
            for (int i = 0; i < 200; i++)
                sink += (long) i * i;
    }

    static void work_0() { burn(2000); }
    static void work_1() { burn(2000); }
    static void work_2() { burn(2000); }
    static void work_3() { burn(2000); }
    static void idle_work() { burn(500); }

    static void work(int n) {
        switch (n) {
            case 0: work_0(); break;
            case 1: work_1(); break;
            case 2: work_2(); break;
            default: work_3();
        }
    }

    static void say(PrintWriter log, String trace, String span, int n) {
        synchronized (log) {
            log.printf("%s %s %d 0%n", trace, span, n);
        }
    }

    static void serve(long end, PrintWriter log) {
        while (System.nanoTime() < end) {
            Transaction t = ElasticApm.startTransaction();
            t.setName("pay");
            int n = Integer.parseInt(t.getId().substring(15), 16) % 2;
            say(log, t.getTraceId(), t.getId(), n);
            try (Scope s = t.activate()) {
                work(n);
                Span child = t.startSpan();
                say(log, child.getTraceId(), child.getId(), 2 + n);
                try (Scope c = child.activate()) {
                    work(2 + n);
                }
                child.end();
            }
            t.end();
            idle_work();
        }
    }

    public static void main(String[] args) throws Exception {
        PrintWriter log = new PrintWriter(args[2]);
        long end = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
        Thread[] threads = new Thread[Integer.parseInt(args[1])];
        for (int i = 0; i < threads.length; i++)
            (threads[i] = new Thread(() -> serve(end, log))).start();
        for (Thread t : threads)
            t.join();
        log.close();
        Thread.sleep(12000); // spans are kept back until what was seen for them has come
    }
}
