// SPDX-License-Identifier: Apache-2.0
// Goroutines that wait for a lock, a socket and a time. Only those that take their thread along
// can be seen: a system call that blocks, and a lock that the runtime did not park on.
package main

import (
	"fmt"
	"net"
	"syscall"
)

func wait_sleep() {
	t := syscall.Timespec{Nsec: 20000000}
	for {
		syscall.Nanosleep(&t, nil)
	}
}

func wait_socket(fd int) {
	b := make([]byte, 1)
	for {
		syscall.Read(fd, b)
	}
}

// A lock of files, on which the thread blocks.
func wait_lock(fd int) {
	for {
		syscall.Flock(fd, syscall.LOCK_EX)
		syscall.Flock(fd, syscall.LOCK_UN)
	}
}

func open() int {
	fd, err := syscall.Open("/proc/self/exe", syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	return fd
}

func main() {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		panic(err)
	}
	one, other := open(), open()
	go wait_sleep()
	go wait_socket(pair[0])
	go wait_lock(one)
	// The listener makes the runtime's poller wait, which is nobody's wait.
	if _, err := net.Listen("tcp", "127.0.0.1:0"); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	t := syscall.Timespec{Nsec: 10000000}
	for {
		syscall.Flock(other, syscall.LOCK_EX)
		syscall.Nanosleep(&t, nil)
		syscall.Flock(other, syscall.LOCK_UN)
		syscall.Write(pair[1], []byte{1})
	}
}
