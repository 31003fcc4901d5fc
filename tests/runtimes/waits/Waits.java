// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a monitor, a lock of java.util.concurrent, a socket and a time, each in a method of its own.

import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.locks.ReentrantLock;

public class Waits {
    static final Object monitor = new Object();
    static final ReentrantLock lock = new ReentrantLock();

    interface Task {
        void run() throws Exception;
    }

    static void wait_monitor() throws Exception {
        for (;;) {
            synchronized (monitor) {
            }
            Thread.sleep(1);
        }
    }

    static void wait_lock() throws Exception {
        for (;;) {
            lock.lock();
            lock.unlock();
            Thread.sleep(1);
        }
    }

    static void wait_sleep() throws Exception {
        for (;;)
            Thread.sleep(20);
    }

    static void wait_socket(InputStream in) throws Exception {
        for (;;)
            in.read();
    }

    static void start(Task task) {
        Thread t = new Thread(() -> {
            try {
                task.run();
            } catch (Exception e) {
                System.exit(1);
            }
        });

        t.setDaemon(true);
        t.start();
    }

    public static void main(String[] arguments) throws Exception {
        ServerSocket server = new ServerSocket(0);
        Socket here = new Socket("127.0.0.1", server.getLocalPort());
        Socket there = server.accept();

        start(Waits::wait_monitor);
        start(Waits::wait_lock);
        start(Waits::wait_sleep);
        start(() -> wait_socket(here.getInputStream()));
        System.out.println("ready");
        for (;;) {
            synchronized (monitor) {
                Thread.sleep(10);
            }
            lock.lock();
            Thread.sleep(10);
            lock.unlock();
            there.getOutputStream().write(1);
        }
    }
}
