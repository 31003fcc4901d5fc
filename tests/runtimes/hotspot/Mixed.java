/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed LIBRARY LIBPYTHON SCRIPT CALLS: Java and Python call each other CALLS times, and then Java
 * works. The script has a function step(n), which calls java(n).
 */
public class Mixed {
    static volatile long sink;

    static native void begin(String libpython, String script);
    /* Calls step(n). */
    static native void python(int n);

    static void leaf() {
        for (int i = 0; i < 1000000; i++)
            sink += i;
    }

    static void java(int n) {
        if (n > 0)
            python(n - 1);
        else
            while (true)
                leaf();
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Thread t = new Thread(null, () -> {
            begin(args[1], args[2]);
            System.out.println("ready");
            java(Integer.parseInt(args[3]));
        }, "mixed", 64 << 20);
        t.start();
        t.join();
    }
}
