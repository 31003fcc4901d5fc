// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Virtual threads that wait for known things, COPIES of each, in a method of its own. Prints "ready", and for each
 * line on the standard input a line: the nanoseconds since the start, then of each thread its method, the number of
 * its waits and their nanoseconds, until it ran again.
 *
 *	Waits LIBRARY COPIES IDLE SPINNING [GARBAGE]
 *
 * IDLE more threads wait for ever in idleForever, and SPINNING ones never wait. With GARBAGE a thread allocates all the
 * time, so that the collector moves objects. Half of the copies are started by an executor.
 */
class Waits {
    static final long BEGUN = System.nanoTime();
    static final List<Clock> clocks = new ArrayList<>();
    static final boolean MONITORS = release() >= 24; // before, who waits for a monitor keeps its carrier
    static ExecutorService executor;
    static volatile long spun;
    static volatile Object garbage;

    interface Work {
        void run() throws Exception;
    }

    interface Waiting {
        void run(Clock c) throws Exception;
    }

    static int release() {
        return (int) Double.parseDouble(System.getProperty("java.specification.version"));
    }

    static long now() {
        return System.nanoTime() - BEGUN;
    }

    /** The waits of one thread. */
    static class Clock {
        final String name;
        long n, sum, from = -1; // from: when the current wait began; -1: there is none

        Clock(String name) {
            this.name = name;
        }

        void begin() {
            set(now(), 0, 0);
        }

        void end() {
            set(-1, 1, now());
        }

        // Without a monitor, which would keep the carrier in old releases.
        private final ReentrantLock lock = new ReentrantLock();

        private void set(long to, int waits, long until) {
            lock.lock();
            sum += waits * (until - from);
            n += waits;
            from = to;
            lock.unlock();
        }

        String read() {
            lock.lock();
            try {
                return " " + name + " " + n + " " + (sum + (from >= 0 ? now() - from : 0));
            } finally {
                lock.unlock();
            }
        }
    }

    static void startVirtual(final Work work) throws Exception {
        Runnable r = () -> {
            try {
                work.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        };
        if (executor != null)
            executor.execute(r);
        else
            Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, r);
    }

    static void start(String name, final Waiting f) throws Exception {
        final Clock c = new Clock(name);
        clocks.add(c);
        startVirtual(() -> f.run(c));
    }

    static void every(final long ms, final Work work) throws Exception {
        startVirtual(() -> {
            for (;;) {
                rest(ms);
                work.run();
            }
        });
    }

    // Between two waits: of another method, so that the waits are told apart.
    static void rest(long ms) throws Exception {
        Thread.sleep(ms);
    }

    static void sleep(Clock c) throws Exception {
        for (;;) {
            c.begin();
            Thread.sleep(50); // waits: sleep
            c.end();
            rest(10);
        }
    }

    static void lock(ReentrantLock lock, Clock c) throws Exception {
        for (;;) {
            c.begin();
            lock.lock(); // waits: lock
            c.end();
            lock.unlock();
            rest(20);
        }
    }

    static void take(BlockingQueue<Integer> queue, Clock c) throws Exception {
        for (;;) {
            c.begin();
            queue.take(); // waits: take
            c.end();
            rest(10);
        }
    }

    static void put(BlockingQueue<Integer> queue, Clock c) throws Exception {
        for (;;) {
            rest(10);
            c.begin();
            queue.put(1); // waits: put
            c.end();
        }
    }

    static void readSocket(InputStream in, Clock c) throws Exception {
        for (;;) {
            c.begin();
            in.read(); // waits: readSocket
            c.end();
            rest(10);
        }
    }

    static void readPipe(Pipe.SourceChannel from, Clock c) throws Exception {
        ByteBuffer b = ByteBuffer.allocate(1);
        for (;;) {
            c.begin();
            from.read(b); // waits: readPipe
            c.end();
            b.clear();
            rest(5);
        }
    }

    static void await(CountDownLatch latch, Clock c) throws Exception {
        c.begin();
        latch.await(); // waits: await
    }

    static void monitor(Object o, Clock c) throws Exception {
        for (;;) {
            c.begin();
            // In one line: the JVM has an interpreted method that waits for a monitor at the next instruction.
            synchronized (o) { c.end(); } // waits: monitor
            rest(20);
        }
    }

    static void object(Object o, Clock c) throws Exception {
        for (;;) {
            synchronized (o) {
                c.begin();
                o.wait(); // waits: object
                c.end();
            }
            rest(10);
        }
    }

    static void idleForever(CountDownLatch latch) throws Exception {
        latch.await();
    }

    static int deep(int n, CountDownLatch latch) throws Exception {
        if (n == 0)
            latch.await();
        return n == 0 ? 0 : 1 + deep(n - 1, latch);
    }

    static void spin() {
        for (;;)
            spun++;
    }

    static void startAll() throws Exception {
        final BlockingQueue<Integer> full = new SynchronousQueue<>(), empty = new LinkedBlockingQueue<>();
        start("take", c -> take(empty, c));
        every(20, () -> empty.put(1));
        start("put", c -> put(full, c));
        every(30, () -> full.take());
        final ReentrantLock lock = new ReentrantLock();
        start("lock", c -> lock(lock, c));
        every(10, () -> {
            lock.lock();
            rest(30);
            lock.unlock();
        });
        start("sleep", c -> sleep(c));
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            final Socket a = new Socket(server.getInetAddress(), server.getLocalPort()), b = server.accept();
            final InputStream in = a.getInputStream();
            final OutputStream out = b.getOutputStream();
            start("readSocket", c -> readSocket(in, c));
            every(30, () -> out.write(1));
        }
        final Pipe pipe = Pipe.open();
        start("readPipe", c -> readPipe(pipe.source(), c));
        every(25, () -> pipe.sink().write(ByteBuffer.wrap(new byte[1])));
        start("await", c -> await(new CountDownLatch(1), c));
        if (!MONITORS)
            return;
        final Object held = new Object(), told = new Object();
        start("monitor", c -> monitor(held, c));
        every(10, () -> {
            synchronized (held) {
                rest(30);
            }
        });
        start("object", c -> object(told, c));
        every(40, () -> {
            synchronized (told) {
                told.notifyAll();
            }
        });
    }

    public static void main(String[] args) throws Exception {
        int copies = Integer.parseInt(args[1]), idle = Integer.parseInt(args[2]), spinning = Integer.parseInt(args[3]);
        ExecutorService perTask = (ExecutorService) Executors.class
            .getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        for (int i = 0; i < copies; i++) {
            executor = i % 2 == 0 ? null : perTask;
            startAll();
            Thread.sleep(7); // so that the copies do not wait in step
        }
        final CountDownLatch never = new CountDownLatch(1);
        for (int i = 0; i < idle; i++) {
            executor = i % 2 == 0 ? null : perTask;
            startVirtual(() -> idleForever(never));
        }
        for (int i = 0; i < spinning; i++)
            startVirtual(() -> spin());
        startVirtual(() -> deep(3000, never));
        if (args.length > 4)
            new Thread(() -> {
                Object[] kept = new Object[20000];
                for (int i = 0;; i = (i + 1) % kept.length)
                    garbage = kept[i] = new byte[1000];
            }).start();
        Thread.sleep(1000);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        while (in.readLine() != null) {
            StringBuilder line = new StringBuilder("clock " + now());
            for (Clock c : clocks)
                line.append(c.read());
            System.out.println(line);
        }
        System.exit(0);
    }
}
