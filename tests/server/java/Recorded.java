// SPDX-License-Identifier: Apache-2.0
/* What a recording is made of: two threads of known chains, for as many milliseconds as asked. */
public class Recorded {
	static volatile long sink;

	static long inner(long n)
	{
		for (long i = 0; i < 20_000_000L; i++)
			n = n * 31 + i;
		return n;
	}

	static void outer()
	{
		sink += inner(sink);
	}

	static int deep(int n)
	{
		if (n == 0) {
			sink += inner(sink);
			return 0;
		}
		return deep(n - 1) + 1;
	}

	public static void main(String[] args) throws Exception
	{
		long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000L;
		Thread second = new Thread(() -> {
			while (System.nanoTime() < end)
				deep(100);
		}, "zweiter Fa\u0308den \u65e5\u672c");

		second.start();
		while (System.nanoTime() < end)
			outer();
		second.join();
	}
}
