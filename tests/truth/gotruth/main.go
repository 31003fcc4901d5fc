// SPDX-License-Identifier: Apache-2.0

// Go: goroutines, defer, an interface call, deep recursion that grows the stack, allocation with
// garbage collection, a panic that is recovered. The valid chains are written by chains().
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var sink uint64

//go:noinline
func leaf(n int) uint64 {
	x := uint64(88172645463325252)
	for i := 0; i < n; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

type shape interface{ work(n int) uint64 }
type square struct{ pad [40]uint64 }
type circle struct{}

//go:noinline
func (s *square) work(n int) uint64 { return leaf(n) + s.pad[3] }

//go:noinline
func (c circle) work(n int) uint64 { return leaf(n) + 1 }

//go:noinline
func recurse(depth, n int) uint64 {
	var frame [50]uint64
	frame[depth%50] = uint64(n)
	if depth == 0 {
		return leaf(n) + frame[7]
	}
	return recurse(depth-1, n) + frame[3]
}

//go:noinline
func panics(n int) (r uint64) {
	defer func() {
		r = recovered(n)
		_ = recover()
	}()
	var p *square
	r = leaf(n)
	return r + p.pad[1]
}

//go:noinline
func recovered(n int) uint64 { return leaf(n) + 1 }

//go:noinline
func shapes(n int) uint64 {
	var r uint64
	for _, s := range []shape{&square{}, circle{}} {
		r += s.work(n)
	}
	return r
}

//go:noinline
func allocs(n int) int {
	var keep [][]byte
	for i := 0; i < n; i++ {
		keep = append(keep, make([]byte, 100+i%1000))
	}
	return len(keep)
}

//go:noinline
func goroutine(n int, done chan uint64) { done <- leaf(n) }

func chains() []string {
	deep := "main.main" + strings.Repeat(";main.recurse", 201)
	return []string{
		"main.main;main.shapes;main.(*square).work;main.leaf",
		"main.main;main.shapes;main.circle.work;main.leaf",
		deep + ";main.leaf",
		"main.main;main.panics;main.leaf",
		"main.main;main.panics;main.panics.func1;main.recovered;main.leaf",
		"main.main;main.allocs",
		"main.goroutine;main.leaf",
	}
}

func writeChains() {
	dir := os.Getenv("TRUTH_OUT")
	if dir == "" {
		return
	}
	comm, _ := os.ReadFile("/proc/self/comm")
	f, err := os.Create(fmt.Sprintf("%s/%s.%d", dir, strings.TrimSpace(string(comm)), os.Getpid()))
	if err != nil {
		panic(err)
	}
	id := 0
	for _, c := range chains() {
		parent := 0
		for _, name := range strings.Split(c, ";") {
			id++
			fmt.Fprintf(f, "%d %d %s\n", id, parent, name)
			parent = id
		}
	}
	f.Close()
}

// What the process has burnt, all its threads together.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func main() {
	ms := 1000
	if len(os.Args) > 1 {
		ms, _ = strconv.Atoi(os.Args[1])
	}
	done := make(chan uint64)
	for cpuTime() < time.Duration(ms)*time.Millisecond {
		sink += shapes(100000)
		sink += recurse(200, 200000)
		sink += panics(100000)
		sink += uint64(allocs(1000))
		for i := 0; i < 2; i++ {
			go goroutine(200000, done)
		}
		for i := 0; i < 2; i++ {
			sink += <-done
		}
	}
	writeChains()
}
