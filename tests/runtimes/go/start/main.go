// SPDX-License-Identifier: Apache-2.0

// Uses a second of CPU time, from its start on, in goroutines and on the system stack.
package main

import (
	"runtime"
	"syscall"
	"time"
)

//go:noinline
func leaf(n int) uint64 {
	x := uint64(1)
	for i := 0; i < n; i++ {
		x = x*31 + uint64(i)
	}
	return x
}

func main() {
	var buf [8192]byte
	var used syscall.Rusage
	sum := uint64(0)
	for time.Duration(used.Utime.Nano()) < time.Second {
		sum += leaf(100000)
		for i := 0; i < 20; i++ {
			sum += uint64(runtime.Stack(buf[:], false))
		}
		syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	}
	runtime.KeepAlive(sum)
}
