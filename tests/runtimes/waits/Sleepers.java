// SPDX-License-Identifier: Apache-2.0
// Threads that sleep on, each in methods of its own. A comment "in NAME" marks the line at which NAME waits. Those of
// the main thread have run often enough to be compiled.

import java.util.concurrent.locks.ReentrantLock;

public class Sleepers {
    static final Object monitor = new Object();
    static final ReentrantLock lock = new ReentrantLock();
    static int sum;

    static void nap_inner() throws Exception {
        Thread.sleep(1000000); // in nap_inner
    }

    static void nap_outer() throws Exception {
        nap_inner(); // in nap_outer
    }

    static void monitor_inner() throws Exception {
        synchronized (monitor) {
            monitor.wait(); // in monitor_inner
        }
    }

    static void monitor_outer() throws Exception {
        monitor_inner(); // in monitor_outer
    }

    static void lock_inner() {
        lock.lock(); // in lock_inner
    }

    static void lock_outer() {
        lock_inner(); // in lock_outer
    }

    static void main_inner(int ms) throws Exception {
        if (ms > 0)
            Thread.sleep(ms); // in main_inner
        sum += ms;
    }

    static void main_middle(int ms) throws Exception {
        main_inner(ms); // in main_middle
    }

    static void main_outer(int ms) throws Exception {
        main_middle(ms); // in main_outer
    }

    interface Task {
        void run() throws Exception;
    }

    static void start(Task task) {
        Thread t = new Thread(() -> {
            try {
                task.run(); // in lambda$start$0
            } catch (Exception e) {
                System.exit(1);
            }
        });

        t.setDaemon(true);
        t.start();
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < 300000; i++)
            main_outer(0);
        lock.lock();
        start(Sleepers::nap_outer);
        start(Sleepers::monitor_outer);
        start(Sleepers::lock_outer);
        System.out.println("ready");
        main_outer(1000000); // in main
    }
}
