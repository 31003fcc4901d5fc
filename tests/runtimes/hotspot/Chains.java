/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Known chains of Java, native and kernel frames. Each thread runs one of them in a loop. A line
 * marked with the name of its method calls the next method of the chain (the chains are in
 * tests/runtimes/test_hotspot.py). Runs on Java 8 and later. `Chains stopped` has one thread whose
 * Java frames never change.
 */
import java.io.FileInputStream;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;

public class Chains {
    static volatile long sink;
    static volatile int zero;
    static final int N = 2000;

    /* The bound is not constant, so that each round has a safepoint and thereby a line in compiled code. */
    static long leaf(int n) {
        long x = n;
        for (int i = 0; i < n + zero; i++)
            x = x * 31 + i;
        sink += x;
        return x;
    }

    /* Calls through vtables and itables, with more classes than a call site caches. */
    interface Shape { long area(int n); }
    static class One implements Shape {
        public long area(int n) { return leaf(n); } // @area
    }
    static class Two extends One { public long area(int n) { return leaf(n); } } // @area
    static class Three extends One { public long area(int n) { return leaf(n); } } // @area
    static final Shape[] SHAPES = {new One(), new Two(), new Three()};

    static long viaInterface(int n) {
        long x = 0;
        for (Shape s : SHAPES)
            x += s.area(n); // @viaInterface
        return x;
    }

    static long deep(int depth) {
        if (depth == 0)
            return leaf(N); // @bottom
        return deep(depth - 1) + 1; // @deep
    }

    static class ByKey implements Comparator<Integer> { // @bridge, of Objects
        public int compare(Integer a, Integer b) {
            leaf(N); // @compare
            return a.compareTo(b);
        }
    }

    static void viaSort() {
        Integer[] all = new Integer[64];
        for (int i = 0; i < all.length; i++)
            all[i] = i * 37 % 64;
        Arrays.sort(all, new ByKey()); // @viaSort
    }

    static synchronized long viaLock(int n) {
        return leaf(n); // @viaLock
    }

    static long thrower(int n) {
        leaf(n); // @thrower
        throw new IllegalStateException();
    }

    static long viaThrow(int n) {
        try {
            return thrower(n); // @viaThrow
        } catch (IllegalStateException e) {
            return 0;
        }
    }

    static void viaReflection(Method m) throws Exception {
        m.invoke(null, N); // @viaReflection
    }

    /* Java → C → Java → C → Java */
    static native long nativeOuter(int n);
    static native long nativeInner(int n);
    static native long nativeSpin();

    static long between(int n) {
        return nativeInner(n); // @between
    }

    static long callback(int n) {
        return leaf(n); // @callback
    }

    static long viaNative(int n) {
        return nativeOuter(n); // @viaNative
    }

    static void viaKernel(FileInputStream zero, byte[] bytes) throws Exception {
        zero.read(bytes); // @viaKernel
    }

    /* Allocates as fast as it can, for collectors and their barriers. */
    static Object viaAllocation(int n) {
        Object[] list = null;
        for (int i = 0; i < n; i++) {
            list = new Object[] {list, new byte[1000]};
            leaf(N); // @viaAllocation
        }
        return list;
    }

    static long viaStopped() {
        return nativeSpin(); // @viaStopped
    }

    static class StopsInside implements Comparator<Integer> {
        public int compare(Integer a, Integer b) {
            return (int) viaStopped(); // @stops
        }
    }

    interface Work { void run() throws Exception; }

    static void loop(Work work) {
        for (;;) {
            try {
                work.run(); // @loop
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }
    }

    static void start(String name, final Work work) {
        Thread t = new Thread(null, new Runnable() {
            public void run() { loop(work); } // @run
        }, name);
        t.start();
    }

    static void startVirtual(final Work work) {
        try {
            Thread.class.getMethod("startVirtualThread", Runnable.class)
                .invoke(null, new Runnable() {
                    public void run() { loop(work); } // @run
                });
        } catch (ReflectiveOperationException e) {
            // a version before 21
        }
    }

    /* Prints "warm" when the compiler has worked and then paused for 500 ms, or if there is no compiler. */
    static void sayWhenWarm() throws InterruptedException {
        CompilationMXBean compiler = ManagementFactory.getCompilationMXBean();
        for (long before = 0, now; compiler != null; before = now) {
            now = compiler.getTotalCompilationTime();
            if (now > 0 && now == before)
                break;
            Thread.sleep(500);
        }
        System.out.println("warm");
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        if (args.length > 1) {
            final Integer[] two = {2, 1};
            start("stopped", new Work() {
                public void run() { Arrays.sort(two, new StopsInside()); } // @work
            });
            System.out.println("ready");
            return;
        }
        final Method m = Chains.class.getDeclaredMethod("leaf", int.class);
        final FileInputStream zero = new FileInputStream("/dev/zero");
        final byte[] bytes = new byte[8192];
        start("interface", new Work() { public void run() { viaInterface(N); } }); // @work
        start("deep", new Work() { public void run() { deep(40); } }); // @work
        start("sort", new Work() { public void run() { viaSort(); } }); // @work
        start("lock", new Work() { public void run() { viaLock(N); } }); // @work
        start("throw", new Work() { public void run() { viaThrow(N); } }); // @work
        start("reflection", new Work() {
            public void run() throws Exception { viaReflection(m); } // @work
        });
        start("native", new Work() { public void run() { viaNative(N); } }); // @work
        start("kernel", new Work() {
            public void run() throws Exception { viaKernel(zero, bytes); } // @work
        });
        start("allocation", new Work() { public void run() { viaAllocation(N); } }); // @work
        startVirtual(new Work() {
            public void run() { viaLock(N); Thread.yield(); } // @work
        });
        System.out.println("ready");
        sayWhenWarm();
    }
}
