// SPDX-License-Identifier: Apache-2.0

// Each scenario spins in a goroutine of its own. Once, it prints the chain that runtime.Callers
// returns there, as a line of JSON. Go 1.15 can compile this file.
package main

/*
int c_outer(int n);
int c_inner(int n);
unsigned long c_spin(int n);
void c_thread(int n);
*/
import "C"

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const n = 300000

var (
	told   = map[string]*uint32{} // by scenario; made in init(), so that no scenario allocates memory
	output sync.Mutex
	sink   uint64
)

func init() {
	for _, name := range []string{"asm", "c_leaf", "callbacks", "deep", "inlines", "system", "system_in_callback", "thread"} {
		told[name] = new(uint32)
	}
}

// Prints the stack of a scenario, once: from its root to the caller of tell.
func tell(scenario string) {
	if !atomic.CompareAndSwapUint32(told[scenario], 0, 1) {
		return
	}
	pcs := make([]uintptr, 1000)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	chain := [][]interface{}{}
	for {
		f, more := frames.Next()
		chain = append([][]interface{}{{f.Function, f.File, f.Line}}, chain...)
		if !more {
			break
		}
	}
	output.Lock()
	json.NewEncoder(os.Stdout).Encode(map[string]interface{}{"scenario": scenario, "chain": chain})
	output.Unlock()
}

//go:noinline
func spin(scenario string) uint64 {
	tell(scenario)
	x := uint64(88172645463325252)
	for i := 0; i < n; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// ---- inlined functions, methods, closures ----

func inlinedLow(scenario string) uint64  { return spin(scenario) + 1 }
func inlinedHigh(scenario string) uint64 { return inlinedLow(scenario) + 2 }

type shape interface{ area(scenario string) uint64 }
type square struct{ side uint64 }

//go:noinline
func (s *square) area(scenario string) uint64 { return inlinedHigh(scenario) + s.side }

func inlines() {
	var s shape = &square{3}
	for {
		func() {
			defer func() { sink += s.area("inlines") }()
		}()
	}
}

// ---- deep recursion, on a new stack each time, which grows ----

//go:noinline
func grow(depth int) uint64 {
	var frame [300]uint64
	frame[depth%300] = uint64(depth)
	if depth == 0 {
		return frame[3]
	}
	return grow(depth-1) + frame[5]
}

//go:noinline
func grows(done chan bool) {
	sink += grow(300)
	done <- true
}

func growing() {
	done := make(chan bool)
	for {
		go grows(done)
		<-done
	}
}

//go:noinline
func recurse(depth int) uint64 {
	if depth == 0 {
		return spin("deep")
	}
	return recurse(depth-1) + 1
}

func deep() {
	for {
		sink += recurse(100)
	}
}

// ---- Go, C, Go, C, Go ----

//export goMiddle
func goMiddle(x C.int) C.int {
	return middle(x)
}

//go:noinline
func middle(x C.int) C.int {
	r := C.c_inner(x)
	return r + 1
}

//export goLeaf
func goLeaf(x C.int) C.int {
	return C.int(spin("callbacks"))
}

func callbacks() {
	for {
		r := C.c_outer(7)
		sink += uint64(r)
	}
}

//go:noinline
func leavesGo() {
	tell("c_leaf")
	r := C.c_spin(n)
	sink += uint64(r)
}

func cLeaf() {
	for {
		leavesGo()
	}
}

// Called back by a thread that Go did not start.
//
//export goFromThread
func goFromThread(x C.int) C.int {
	sum := uint64(0)
	for i := 0; i < 20; i++ { // several times, because each call from C waits for the scheduler
		sum += spin("thread")
	}
	return C.int(sum)
}

// Runs Go code on the system stack, below a callback.
//
//export goSystem
func goSystem(x C.int) C.int {
	for i := 0; i < 10; i++ { // as in goFromThread
		system("system_in_callback")
	}
	return x
}

// ---- the system stack, assembly, the scheduler ----

//go:noinline
func system(scenario string) {
	tell(scenario)
	buf := make([]byte, 1<<16)
	for i := 0; i < 20; i++ {
		sink += uint64(runtime.Stack(buf, false))
	}
}

//go:noinline
func deeper(depth int, scenario string) {
	if depth > 0 {
		deeper(depth-1, scenario)
		return
	}
	system(scenario)
}

func systems() {
	for {
		deeper(20, "system")
	}
}

func systemsInCallback() {
	for {
		sink += uint64(C.c_inner(-1))
	}
}

//go:noinline
func hash(data []byte) byte {
	tell("asm")
	sum := sha256.Sum256(data)
	return sum[0]
}

//go:noinline
func move(to, from []byte) { copy(to, from) }

func assembly() {
	data, other := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		sink += uint64(hash(data))
		for i := 0; i < 20; i++ {
			move(other, data)
		}
	}
}

func scheduled() {
	a, b := make(chan int), make(chan int)
	go func() {
		for x := range a {
			b <- x
		}
	}()
	for {
		a <- 1
		<-b
		runtime.Gosched()
	}
}

// Tells whether C's thread runs Go code. On a busy machine it mostly waits for the scheduler.
func burnsInThread(stacks string) bool {
	for _, stack := range strings.Split(stacks, "\n\n") {
		if strings.Contains(stack, "]:\nmain.spin(") && strings.Contains(stack, "main.goFromThread(") {
			return true
		}
	}
	return false
}

// Stops all goroutines several times and prints their stacks by runtime.Stack.
func sayAll() {
	buf := make([]byte, 1<<20)
	for i, seen := 0, 0; i < 30 || (seen < 2 && i < 5000); i++ {
		stacks := string(buf[:runtime.Stack(buf, true)])
		burns := burnsInThread(stacks)
		if burns || i < 30 {
			output.Lock()
			json.NewEncoder(os.Stdout).Encode(map[string]interface{}{"stacks": stacks})
			output.Unlock()
		}
		if burns {
			seen++
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func main() {
	scenarios := map[string]func(){
		"inlines": inlines, "growing": growing, "deep": deep, "callbacks": callbacks,
		"c_leaf": cLeaf, "systems": systems, "systems_in_callback": systemsInCallback,
		"assembly": assembly, "scheduled": scheduled,
		"thread": func() { C.c_thread(n) },
	}
	for _, name := range strings.Split(os.Args[1], ",") {
		go scenarios[name]()
	}
	os.Stdin.Read(make([]byte, 1))
	sayAll()
}
