// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a monitor, which one thread has nearly always: half of the time it works, and then it sleeps.
// Another pair does the same with a monitor of its own.

import java.util.concurrent.CountDownLatch;

public class Monitors {
    static volatile long sum;

    static void work_in_monitor() {
        for (long end = System.nanoTime() + 10_000_000; System.nanoTime() < end;)
            sum += System.nanoTime();
    }

    static void sleep_in_monitor() throws InterruptedException {
        Thread.sleep(10);
    }

    static void sleep_outside() throws InterruptedException {
        Thread.sleep(2);
    }

    static void hold_monitor(Object monitor) throws InterruptedException {
        for (;;) {
            synchronized (monitor) {
                work_in_monitor();
                sleep_in_monitor();
            }
            sleep_outside();
        }
    }

    static void wait_monitor(Object monitor) throws InterruptedException {
        for (;;) {
            synchronized (monitor) {
                sum++;
            }
            Thread.sleep(1);
        }
    }

    interface Task {
        void run(Object monitor) throws InterruptedException;
    }

    static void start(String name, Task task, Object monitor, CountDownLatch started) throws Exception {
        Thread t = new Thread(() -> {
            started.countDown();
            try {
                task.run(monitor);
            } catch (InterruptedException e) {
                System.exit(1);
            }
        }, name);

        t.setDaemon(true);
        t.start();
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch started = new CountDownLatch(7);
        Object one = new Object(), other = new Object();

        start("holder", Monitors::hold_monitor, one, started);
        for (int i = 0; i < 3; i++)
            start("waiter" + i, Monitors::wait_monitor, one, started);
        start("other-holder", Monitors::hold_monitor, other, started);
        for (int i = 0; i < 2; i++)
            start("other-waiter" + i, Monitors::wait_monitor, other, started);
        started.await();
        Thread.sleep(1000);
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
