/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the named threads, whose Java frames never change after "ready" was printed, so that each
 * sample must have the frames that the JVM reports. Each thread spins in a native method, below
 * frames of another kind; its root is the method of Stopped with its name. Runs on Java 8 and later.
 */
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Comparator;

public class Stopped {
    static final int ALTERNATIONS = 104;
    static volatile int sink;

    /* Returns at once, or never if `forever`. */
    static native int spin(boolean forever);
    /* Returns how many threads spin for ever. */
    static native int stopped();
    /* Calls down(depth) from C. */
    static native int cross(int depth);

    static class StopsInside implements Comparator<Integer> {
        public int compare(Integer a, Integer b) {
            return spin(true);
        }
    }

    /* Interpreted frames, because each method is called once. */
    static void plain() {
        Arrays.sort(new Integer[] {2, 1}, new StopsInside());
    }

    /* Java → C → Java → C … */
    static int down(int depth) {
        if (depth == 0)
            return spin(true);
        return cross(depth) + 1;
    }

    static void alternating() {
        down(ALTERNATIONS);
    }

    /* Runs long enough for each compiler: calls are inlined, and the loop is compiled while it runs. */
    static int third(int n, boolean forever) {
        return spin(forever) + n;
    }

    static int second(int n, boolean forever) {
        return third(n, forever) * 3;
    }

    static int first(int n, boolean forever) {
        return second(n + 1, forever) ^ n;
    }

    static int loop(int from, int to, int last) {
        int x = 0;
        for (int i = from; i < to; i++)
            x += first(i, i == last);
        return x;
    }

    static void compiled() {
        for (int i = 0; i < 300; i++)
            sink += loop(0, 2000, -1);
        sink += loop(0, Integer.MAX_VALUE, 4000000);
    }

    /* Frames of recursion, an interface's default method, a lambda and reflection. */
    interface Step {
        int go(int n) throws Exception;

        default int twice(int n) throws Exception {
            return go(n) + 1;
        }
    }

    public static int invoked(int n) {
        return spin(true) + n;
    }

    static int recursive(int n, Step step) throws Exception {
        return n == 0 ? step.twice(7) : recursive(n - 1, step) + 1;
    }

    static void mixed() throws Exception {
        final Method m = Stopped.class.getMethod("invoked", int.class);

        recursive(30, n -> (Integer) m.invoke(null, n));
    }

    interface Work {
        void run() throws Exception;
    }

    static Runnable quiet(final Work work) {
        return new Runnable() {
            public void run() {
                try {
                    work.run();
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            }
        };
    }

    static void startVirtual(final Work work) throws Exception {
        try {
            Thread.class.getMethod("startVirtualThread", Runnable.class)
                .invoke(null, quiet(work));
        } catch (NoSuchMethodException e) {
            // a version before 21
        }
    }

    static void virtual() throws Exception {
        recursive(10, n -> spin(true));
    }

    /* After the sleep only the innermost frames are on a stack; the others stay in the heap. */
    static void parked() throws Exception {
        recursive(10, n -> {
            Thread.sleep(100);
            return spin(true);
        });
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        String[] names = args[1].split(",");
        for (String name : names) {
            if (name.equals("plain"))
                new Thread(quiet(Stopped::plain), name).start();
            else if (name.equals("alternating"))
                new Thread(quiet(Stopped::alternating), name).start();
            else if (name.equals("compiled"))
                new Thread(quiet(Stopped::compiled), name).start();
            else if (name.equals("mixed"))
                new Thread(quiet(Stopped::mixed), name).start();
            else if (name.equals("virtual"))
                startVirtual(Stopped::virtual);
            else
                startVirtual(Stopped::parked);
        }
        while (stopped() < names.length)
            Thread.sleep(10);
        System.out.println("ready");
        Thread.currentThread().join(); // virtual threads do not keep the JVM alive
    }
}
