// SPDX-License-Identifier: Apache-2.0

// Command measured makes 6000 calls of each of its functions, in goroutines whose stacks are small and grow within them,
// and which move between threads.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

type shop struct{ id int }

var sink int

//go:noinline
func deep(n int) int {
	var pad [512]byte
	pad[n%512] = byte(n)
	if n == 0 {
		return int(pad[0])
	}
	return deep(n-1) + int(pad[n%512])&1
}

//go:noinline
func grow(n int, name string, ok bool) (int, error) {
	sink = deep(n%200 + 50)
	runtime.Gosched()
	if n%1000 == 1 {
		time.Sleep(5 * time.Millisecond)
		return -7, errors.New("slow")
	}
	return n, nil
}

//go:noinline
func (s *shop) visit(n int32, who string) string {
	if n%2 == 0 {
		return "even " + who
	}
	return "odd"
}

//go:noinline
func panics(n int) (r int) {
	defer func() {
		if recover() != nil {
			r = -1
		}
	}()
	thrower(n)
	return n
}

//go:noinline
func thrower(n int) {
	if n%2 == 1 {
		panic("x")
	}
}

func main() {
	var wg sync.WaitGroup
	n := 20
	per := 300
	for g := 0; g < n; g++ {
		wg.Add(1)
		go func(g int) {
			defer wg.Done()
			s := &shop{g}
			for i := 0; i < per; i++ {
				done := make(chan int)
				go func() { r, _ := grow(g*per+i, "name", true); done <- r }()
				<-done
				s.visit(int32(i), "bob")
				panics(i)
			}
		}(g)
	}
	wg.Wait()
	fmt.Fprintln(os.Stderr, "calls", n*per)
}
