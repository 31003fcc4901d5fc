// SPDX-License-Identifier: Apache-2.0
// Allocates arrays of 1 KiB at three sites in random order, 10, 30 and 60 % of them, and prints after each 64 MiB how many
// bytes each site has allocated so far.
import java.util.SplittableRandom;

public class Allocates {
    static volatile Object sink;
    static final int BYTES = 1024;
    static final long[] allocated = new long[3];

    static void ten() {
        sink = new byte[BYTES - 16];
        allocated[0] += BYTES;
    }

    static void thirty() {
        sink = new byte[BYTES - 16];
        allocated[1] += BYTES;
    }

    static void sixty() {
        sink = new byte[BYTES - 16];
        allocated[2] += BYTES;
    }

    static long all() {
        return allocated[0] + allocated[1] + allocated[2];
    }

    /** Arguments: milliseconds of a pause after each MiB; MiB until it ends. */
    public static void main(String[] arguments) throws Exception {
        long told = 0, paused = 0, pause = arguments.length > 0 ? Long.parseLong(arguments[0]) : 0;
        long end = arguments.length > 1 ? Long.parseLong(arguments[1]) << 20 : Long.MAX_VALUE;
        // Each so many-th number of java.util.Random is like the one before, and buffers end after each so many-th array.
        SplittableRandom random = new SplittableRandom(7);

        System.out.println("ready");
        while (all() < end) {
            for (int i = 0; i < 1000; i++) {
                int n = random.nextInt(10);

                if (n < 1)
                    ten();
                else if (n < 4)
                    thirty();
                else
                    sixty();
            }
            if (pause > 0 && all() - paused >= 1 << 20) {
                paused = all();
                Thread.sleep(pause);
            }
            if (all() - told >= 64 << 20) {
                told = all();
                System.out.println(allocated[0] + " " + allocated[1] + " " + allocated[2]);
            }
        }
    }
}
