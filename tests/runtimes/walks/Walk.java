// SPDX-License-Identifier: Apache-2.0
// main calls outer calls inner, over and over, in a thread named "walk". Compiles for 8 and later.
public class Walk {
    static volatile long sink;

    static long inner(long n) {
        for (int i = 0; i < 1000; i++)
            n = n * 31 % 1000003 + i;
        return n;
    }

    static void outer() {
        for (int i = 0; i < 100; i++)
            sink += inner(i);
    }

    public static void main(String[] args) {
        Thread.currentThread().setName("walk");
        System.out.println("ready");
        for (;;)
            outer();
    }
}
