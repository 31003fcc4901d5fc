// SPDX-License-Identifier: Apache-2.0
/* What a recording of waits and memory is made of: two threads that compute, contend for a monitor, park, and allocate. */
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

public class Contended {
	static final Object monitor = new Object();
	static final ReentrantLock lock = new ReentrantLock();
	static volatile long sink;
	static volatile Object kept;

	static void hold() throws InterruptedException
	{
		synchronized (monitor) {
			Thread.sleep(30);
		}
	}

	static void own() throws InterruptedException
	{
		lock.lock();
		try {
			Thread.sleep(30);
		} finally {
			lock.unlock();
		}
	}

	static void allocate()
	{
		for (int i = 0; i < 200; i++)
			kept = new byte[100_000];
		kept = new byte[8_000_000]; /* outside of any buffer */
	}

	static void compute()
	{
		long n = sink;

		for (long i = 0; i < 20_000_000L; i++)
			n = n * 31 + i;
		sink = n;
	}

	static void work(long end)
	{
		try {
			while (System.nanoTime() < end) {
				hold();
				own();
				allocate();
				compute();
				LockSupport.parkNanos(25_000_000L);
			}
		} catch (InterruptedException e) {
			throw new IllegalStateException(e);
		}
	}

	public static void main(String[] args) throws Exception
	{
		long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000L;
		Thread other = new Thread(() -> work(end), "other");

		other.start();
		work(end);
		other.join();
	}
}
