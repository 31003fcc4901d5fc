/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains that end in code which the VM treats specially: stubs that copy, fill, compare, hash and
 * encrypt, loops that are compiled while they run, code whose assumptions become wrong, and objects
 * that are read and written under a collector's barriers. Each thread runs one chain in a loop; a
 * line marked with the name of its method calls the next method of the chain.
 */
import java.lang.ref.WeakReference;
import java.util.Arrays;
import java.util.zip.CRC32;
import javax.crypto.Cipher;
import javax.crypto.spec.SecretKeySpec;
import java.math.BigInteger;
import java.security.MessageDigest;

public class Corners {
    static volatile Object sink;
    static volatile double number = 0.5;

    static void viaCopy(Object[] from, Object[] to, int n) {
        for (int i = 0; i < 50; i++)
            System.arraycopy(from, 0, to, i & 7, n); // @viaCopy
    }

    static void viaBytes(byte[] from, byte[] to, int n) {
        for (int i = 0; i < 50; i++)
            System.arraycopy(from, i & 15, to, 0, n);
    }

    static void viaClone(int[] from) {
        for (int i = 0; i < 20; i++)
            sink = from.clone();
    }

    static void viaFill(long[] to) {
        for (int i = 0; i < 20; i++)
            Arrays.fill(to, i);
    }

    static void viaMath() {
        double x = number;
        for (int i = 0; i < 200; i++)
            x = Math.sin(x) + Math.cos(x) + Math.exp(x / 4) + Math.log(x + 9) + Math.pow(x, 0.3) + Math.tan(x);
        number = x - Math.floor(x);
    }

    static void viaChecksum(CRC32 crc, byte[] bytes) {
        for (int i = 0; i < 20; i++)
            crc.update(bytes, 0, bytes.length);
    }

    static void viaDigest(MessageDigest[] all, byte[] bytes) {
        for (MessageDigest d : all)
            sink = d.digest(bytes);
    }

    static void viaCipher(Cipher cipher, byte[] bytes) throws Exception {
        sink = cipher.doFinal(bytes);
    }

    static void viaMultiply(BigInteger a, BigInteger b) {
        sink = a.multiply(b).modPow(a, b);
    }

    static void viaStrings(String[] all) {
        for (String s : all) {
            sink = s + s.indexOf("zz") + s.equals(all[0]) + s.compareTo(all[1]) + s.hashCode();
            sink = s.toLowerCase();
        }
    }

    /* A loop that is compiled while it runs, and is entered in the middle. */
    static long viaLoop(int n) {
        long x = 0;
        for (int i = 0; i < n; i++)
            x += i ^ (x << 1);
        return x;
    }

    /* Code that was compiled for one class gets objects of another, again and again. */
    static class Base { int value(int n) { return n; } }
    static class Other extends Base { int value(int n) { return n + 1; } }
    static int viaSurprise(Base b, int n) {
        int x = 0;
        for (int i = 0; i < n; i++)
            x += surprised(b, i); // @viaSurprise
        return x;
    }
    static int surprised(Base b, int n) {
        Object o = n == 1999 ? new int[] {n} : null;
        if (o != null)
            sink = o;
        return b.value(n);
    }

    static class Node { Node left, right; Object[] data; Node(Node l, Node r) { left = l; right = r; } }
    static Node viaTree(int depth) {
        if (depth == 0)
            return new Node(null, null);
        Node n = new Node(viaTree(depth - 1), viaTree(depth - 1));
        n.data = new Object[] {n.left, n.right};
        return n;
    }

    static void viaReferences(Node[] all) {
        for (int i = 0; i < 400; i++) {
            Node n = all[i & 63];
            all[(i * 7) & 63] = new Node(n, all[(i * 3) & 63].left);
            all[(i * 7) & 63].left = null;
            sink = new WeakReference<Node>(n).get();
        }
    }

    static final Object lock = new Object();
    static int shared;
    static void viaContention() {
        for (int i = 0; i < 100; i++) {
            synchronized (lock) {
                shared++;
            }
        }
    }

    static void viaThrows(int n) {
        try {
            deepThrow(n);
        } catch (ArrayIndexOutOfBoundsException e) {
            sink = e;
        } catch (NullPointerException e) {
            sink = e;
        }
    }
    static int deepThrow(int n) {
        if (n == 0)
            return (shared & 1) == 0 ? ((int[]) null)[shared] : new int[1][shared].length + SMALL[99];
        return deepThrow(n - 1) + 1;
    }
    static final int[] SMALL = {1};

    /* An exception that is thrown in a loop and caught on its way, in compiled code and its stubs only. */
    static class Known extends RuntimeException {
        Known() { super(null, null, false, false); }
    }
    static final Known KNOWN = new Known();
    static int unwound;
    static void viaRethrow(int n) {
        for (int i = 0; i < 50; i++) {
            try {
                rethrow(n);
            } catch (Known e) {
                sink = e;
            }
        }
    }
    static void rethrow(int n) {
        if (n == 0)
            throw KNOWN;
        try {
            rethrow(n - 1);
        } finally {
            unwound++;
        }
    }

    interface Work { void run() throws Exception; }

    static void loop(Work work) {
        for (;;) {
            try {
                work.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }
    }

    static void start(String name, final Work work) {
        new Thread(null, new Runnable() {
            public void run() { loop(work); }
        }, name).start();
    }

    static MessageDigest digest(String name) throws Exception { return MessageDigest.getInstance(name); }

    public static void main(String[] args) throws Exception {
        final Object[] objects = new Object[600];
        Arrays.fill(objects, "x");
        final Object[] to = new Object[700];
        final byte[] bytes = new byte[3000], others = new byte[3000];
        final int[] ints = new int[1000];
        final long[] longs = new long[1000];
        final CRC32 crc = new CRC32();
        final MessageDigest[] digests = {digest("MD5"), digest("SHA-1"), digest("SHA-256"), digest("SHA-512")};
        final Cipher cipher = Cipher.getInstance("AES/ECB/NoPadding");
        cipher.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(new byte[16], "AES"));
        final Cipher chained = Cipher.getInstance("AES/CBC/PKCS5Padding");
        chained.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(new byte[16], "AES"));
        final BigInteger a = BigInteger.ONE.shiftLeft(1024).subtract(BigInteger.TEN);
        final BigInteger b = BigInteger.ONE.shiftLeft(1023).add(BigInteger.ONE);
        final String[] strings = new String[8];
        for (int i = 0; i < 8; i++) {
            StringBuilder s = new StringBuilder();
            for (int k = 0; k < 40 + i; k++)
                s.append((char) (i == 3 ? 0x400 + k : 'A' + k % 26));
            strings[i] = s.toString();
        }
        final Node[] nodes = new Node[64];
        Arrays.fill(nodes, new Node(null, null));
        start("copy", new Work() { public void run() { viaCopy(objects, to, 600); } });
        start("bytes", new Work() { public void run() { viaBytes(bytes, others, 2900); } });
        start("clone", new Work() { public void run() { viaClone(ints); } });
        start("fill", new Work() { public void run() { viaFill(longs); } });
        start("math", new Work() { public void run() { viaMath(); } });
        start("checksum", new Work() { public void run() { viaChecksum(crc, bytes); } });
        start("digest", new Work() { public void run() { viaDigest(digests, bytes); } });
        start("cipher", new Work() { public void run() throws Exception { viaCipher(cipher, Arrays.copyOf(bytes, 1600)); viaCipher(chained, bytes); } });
        start("multiply", new Work() { public void run() { viaMultiply(a, b); } });
        start("strings", new Work() { public void run() { viaStrings(strings); } });
        start("loop", new Work() { public void run() { viaLoop(200000); } });
        start("surprise", new Work() {
            int n;
            public void run() { viaSurprise(++n % 100 == 0 ? new Other() : new Base(), n % 50 == 0 ? 2000 : 500); }
        });
        start("tree", new Work() { public void run() { sink = viaTree(6); } });
        start("references", new Work() { public void run() { viaReferences(nodes); } });
        start("contention", new Work() { public void run() { viaContention(); } });
        start("contention2", new Work() { public void run() { viaContention(); } });
        start("throws", new Work() { public void run() { viaThrows(5); } });
        start("rethrow", new Work() { public void run() { viaRethrow(5); } });
        System.out.println("ready");
    }
}
