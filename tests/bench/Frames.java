// SPDX-License-Identifier: Apache-2.0
// Burns CPU at the end of args[0] frames.
class Frames {
    static volatile int x = 1;

    static void leaf() {
        for (int i = 0;; i++) {
            x = (x * 5 + i) & 0xffff;
        }
    }

    static int level(int n) {
        if (n > 1) {
            level(n - 1);
        } else {
            leaf();
        }
        return n;
    }

    public static void main(String[] args) {
        level(Integer.parseInt(args[0]) - 2);
    }
}
