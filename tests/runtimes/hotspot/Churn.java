/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads classes without end, each with a loader of its own, calls them until they are compiled, and
 * drops them, so that methods and their code are freed and others take their places all the time. A
 * thread lane0 to lane3 runs only classes whose number modulo 4 is its own, so that a test can detect
 * a name of another thread's class.
 */
import java.io.ByteArrayOutputStream;
import java.io.InputStream;

public class Churn {
    public interface Unit { // public, because its implementations have another run-time package
        long run(int n);
    }

    static class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass(null, bytes, 0, bytes.length);
        }
    }

    static volatile long sink;
    static byte[] template;

    public static long leaf(int n) {
        long x = n;
        for (int i = 0; i < n; i++)
            x = x * 33 + i;
        return x;
    }

    /* Returns the template with 00000 replaced by the number, which has five digits, too. */
    static byte[] numbered(int number) {
        byte[] out = template.clone();
        byte[] digits = String.format("%05d", number).getBytes();
        for (int i = 0; i + 5 <= out.length; i++) {
            boolean zeros = true;
            for (int k = 0; k < 5; k++)
                zeros &= template[i + k] == '0';
            if (zeros)
                System.arraycopy(digits, 0, out, i, 5);
        }
        return out;
    }

    static void lane(int which) {
        try {
            for (int number = which; number < 99996; number += 4) {
                Unit unit = (Unit) new Loader().define(numbered(number)).newInstance();
                for (int i = 0; i < 400; i++)
                    sink += unit.run(1000);
                if (number % 128 == which)
                    System.gc();
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    static void lane0() { lane(0); }
    static void lane1() { lane(1); }
    static void lane2() { lane(2); }
    static void lane3() { lane(3); }

    public static void main(String[] args) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (InputStream in = Churn.class.getResourceAsStream("Unit00000.class")) {
            for (int b; (b = in.read()) >= 0;)
                bytes.write(b);
        }
        template = bytes.toByteArray();
        new Thread(Churn::lane0).start();
        new Thread(Churn::lane1).start();
        new Thread(Churn::lane2).start();
        new Thread(Churn::lane3).start();
        System.out.println("ready");
    }
}
