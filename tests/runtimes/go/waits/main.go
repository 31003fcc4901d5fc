// SPDX-License-Identifier: Apache-2.0
// Goroutines that wait for known things, COPIES of each, in a function of its own. Prints "ready",
// and for each line on the standard input a line: the nanoseconds since the start, then of each
// goroutine its function, the number of its waits and their nanoseconds, until it ran again.
//
//	waits COPIES IDLE SPINNING
//
// IDLE more goroutines wait for ever in idleForever, and SPINNING ones never wait.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var begun time.Time

// The calls of one goroutine.
type clock struct {
	name      string
	n         int64
	sum, from int64 // from: when the current call began; 0: there is none
}

var clocks []*clock

func now() int64 { return int64(time.Since(begun)) }

func (c *clock) begin() { atomic.StoreInt64(&c.from, now()) }

func (c *clock) end() {
	atomic.AddInt64(&c.n, 1)
	atomic.AddInt64(&c.sum, now()-atomic.LoadInt64(&c.from))
	atomic.StoreInt64(&c.from, 0)
}

// What it has waited until now.
func (c *clock) read() int64 {
	sum, from := atomic.LoadInt64(&c.sum), atomic.LoadInt64(&c.from)
	if from != 0 {
		sum += now() - from
	}
	return sum
}

func start(name string, f func(c *clock)) {
	c := &clock{name: name}
	clocks = append(clocks, c)
	go f(c)
}

//go:noinline
func spin() {
	for {
		atomic.AddInt64(&spun, 1)
	}
}

var spun int64

// Between two waits: of another function, so that the waits are told apart.
//
//go:noinline
func rest(d time.Duration) { time.Sleep(d) }

//go:noinline
func receive(from chan int, c *clock) {
	for {
		c.begin()
		<-from // waits: receive
		c.end()
		rest(10 * time.Millisecond)
	}
}

//go:noinline
func send(to chan int, c *clock) {
	for {
		rest(10 * time.Millisecond)
		c.begin()
		to <- 1 // waits: send
		c.end()
	}
}

//go:noinline
func choose(a, b chan int, c *clock) {
	for {
		c.begin()
		select { // waits: choose
		case <-a:
		case <-b:
		}
		c.end()
		rest(10 * time.Millisecond)
	}
}

//go:noinline
func lock(m *sync.Mutex, c *clock) {
	for {
		c.begin()
		m.Lock() // waits: lock
		c.end()
		m.Unlock()
		rest(20 * time.Millisecond)
	}
}

//go:noinline
func sleep(c *clock) {
	for {
		c.begin()
		time.Sleep(50 * time.Millisecond) // waits: sleep
		c.end()
		rest(10 * time.Millisecond)
	}
}

//go:noinline
func readSocket(s net.Conn, c *clock) {
	b := make([]byte, 1)
	for {
		c.begin()
		if _, err := s.Read(b); err != nil { // waits: readSocket
			panic(err)
		}
		c.end()
		rest(10 * time.Millisecond)
	}
}

//go:noinline
func readPipe(f *os.File, c *clock) {
	b := make([]byte, 1)
	for {
		c.begin()
		if _, err := f.Read(b); err != nil { // waits: readPipe
			panic(err)
		}
		c.end()
		rest(5 * time.Millisecond)
	}
}

//go:noinline
func waitGroup(w *sync.WaitGroup, c *clock) {
	c.begin()
	w.Wait() // waits: waitGroup
}

//go:noinline
func idleForever(c chan int) { <-c }

// Deep recursion: the stack is larger than what is copied of it.
//
//go:noinline
func deep(n int, from chan int) int {
	var room [128]byte
	if n == 0 {
		<-from
		return 0
	}
	room[n%128] = 1
	return deep(n-1, from) + int(room[(n+1)%128])
}

func every(d time.Duration, f func()) {
	for {
		rest(d)
		f()
	}
}

func sockets() (net.Conn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	done := make(chan net.Conn)
	go func() {
		s, err := l.Accept()
		if err != nil {
			panic(err)
		}
		done <- s
	}()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		panic(err)
	}
	return a, <-done
}

func startAll() {
	values, slow, one, other := make(chan int), make(chan int), make(chan int), make(chan int)
	start("receive", func(c *clock) { receive(values, c) })
	go every(20*time.Millisecond, func() { values <- 1 })
	start("send", func(c *clock) { send(slow, c) })
	go every(30*time.Millisecond, func() { <-slow })
	start("choose", func(c *clock) { choose(one, other, c) })
	go every(40*time.Millisecond, func() { one <- 1 })
	go every(40*time.Millisecond, func() { other <- 1 })
	var m sync.Mutex
	start("lock", func(c *clock) { lock(&m, c) })
	go every(10*time.Millisecond, func() { m.Lock(); rest(30 * time.Millisecond); m.Unlock() })
	start("sleep", func(c *clock) { sleep(c) })
	a, b := sockets()
	start("readSocket", func(c *clock) { readSocket(a, c) })
	go every(30*time.Millisecond, func() { b.Write([]byte{1}) })
	r, w, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	start("readPipe", func(c *clock) { readPipe(r, c) })
	go every(25*time.Millisecond, func() { w.Write([]byte{1}) })
	var g sync.WaitGroup
	g.Add(1)
	start("waitGroup", func(c *clock) { waitGroup(&g, c) })
}

func main() {
	begun = time.Now()
	counts := [3]int{}
	for i := range counts {
		counts[i], _ = strconv.Atoi(os.Args[i+1])
	}
	for i := 0; i < counts[0]; i++ {
		startAll()
		// So that the copies do not wait in step.
		time.Sleep(7 * time.Millisecond)
	}
	never := make(chan int)
	for i := 0; i < counts[1]; i++ {
		go idleForever(never)
	}
	for i := 0; i < counts[2]; i++ {
		go spin()
	}
	go deep(1000, never)
	time.Sleep(200 * time.Millisecond)
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		fmt.Print("clock ", now())
		for _, c := range clocks {
			fmt.Print(" ", c.name, " ", atomic.LoadInt64(&c.n), " ", c.read())
		}
		fmt.Println()
	}
}
