// SPDX-License-Identifier: Apache-2.0

// A program with known allocation sites, which tells its own memory profile (tests/live/test_heap.py).
//
// Commands on standard input, one a line; each is answered by a line of JSON, or "done":
//
//	work N		allocates N times at each site, and keeps some of it
//	drop		releases what the sites keep
//	gc		collects twice, so that all frees are published
//	profile		runtime.MemProfile: [{"allocs", "bytes", "frees", "freed", "stack": [function …], "lines": [line …]} …]
//	pprof FILE	writes the heap profile of runtime/pprof
//	churn		allocates without end, in the background, with collections
//	many		allocates once at each of 30,000 sites
//	sleep MS	waits
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

type record struct {
	Allocs int64    `json:"allocs"`
	Bytes  int64    `json:"bytes"`
	Frees  int64    `json:"frees"`
	Freed  int64    `json:"freed"`
	Stack  []string `json:"stack"`
	Lines  []int    `json:"lines"`
}

var (
	kept  [][]byte
	trees []*tree
	table = map[int]*[64]byte{}
	sink  interface{}
)

type tree struct {
	left, right *tree
	payload     [40]byte
}

// Inlined into its callers, which are inlined, too.
func small() []byte { return make([]byte, 1000) }

func throughInlined(i int) []byte {
	if i%2 == 0 {
		return small()
	}
	return make([]byte, 3000)
}

//go:noinline
func keepInlined(i int) { kept = append(kept, throughInlined(i)) }

//go:noinline
func keepLarge() { kept = append(kept, make([]byte, 1<<20)) }

//go:noinline
func dropped() { sink = make([]byte, 20000) }

//go:noinline
func deep(n int) []byte {
	if n > 0 {
		return deep(n - 1)
	}
	return make([]byte, 5000)
}

//go:noinline
func grow(depth int) *tree {
	if depth == 0 {
		return nil
	}
	return &tree{left: grow(depth - 1), right: grow(depth - 1)}
}

//go:noinline
func inMap(i int) { table[i] = new([64]byte) }

type closer interface{ close() []byte }

type file struct{ n int }

func (f file) close() []byte { return make([]byte, f.n) }

// By a wrapper that the compiler makes.
//
//go:noinline
func throughInterface(c closer) { kept = append(kept, c.close()) }

func work(n int) {
	for i := 0; i < n; i++ {
		keepInlined(i)
		dropped()
		inMap(len(table))
		if i%8 == 0 {
			keepLarge()
			kept = append(kept, deep(40))
			trees = append(trees, grow(8))
			throughInterface(&file{7000})
			func() { sink = strings.Repeat("x", 50000) }()
		}
	}
}

func churn() {
	for {
		sink = make([]byte, 30000)
		grow(6)
	}
}

//go:noinline
func many(depth, size, path int) {
	if depth > 0 && path>>(depth%3)&1 == 0 {
		many(depth-1, size, path)
		return
	}
	if depth > 0 {
		many(depth-1, size, path)
		return
	}
	sink = make([]byte, size)
}

func profile() []record {
	var all []record
	p := make([]runtime.MemProfileRecord, 20000)
	n, ok := runtime.MemProfile(p, true)
	if !ok {
		panic("too many records")
	}
	for i := range p[:n] {
		r := record{p[i].AllocObjects, p[i].AllocBytes, p[i].FreeObjects, p[i].FreeBytes, nil, nil}
		frames := runtime.CallersFrames(p[i].Stack())
		for {
			f, more := frames.Next()
			if f.Function != "" {
				r.Stack = append(r.Stack, f.Function)
				r.Lines = append(r.Lines, f.Line)
			}
			if !more {
				break
			}
		}
		all = append(all, r)
	}
	return all
}

func writePprof(path string) {
	f, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if err := pprof.Lookup("heap").WriteTo(f, 0); err != nil {
		panic(err)
	}
}

func main() {
	if rate := os.Getenv("RATE"); rate != "" {
		runtime.MemProfileRate, _ = strconv.Atoi(rate)
	}
	in := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for in.Scan() {
		words := strings.Fields(in.Text())
		switch words[0] {
		case "work":
			n, _ := strconv.Atoi(words[1])
			work(n)
		case "drop":
			kept, trees, table, sink = nil, nil, map[int]*[64]byte{}, nil
		case "gc":
			runtime.GC()
			runtime.GC()
		case "profile":
			text, _ := json.Marshal(profile())
			fmt.Println(string(text))
			continue
		case "pprof":
			writePprof(words[1])
		case "churn":
			go churn()
		case "many":
			for i := 0; i < 120*8*82; i++ {
				many(i%120, 64+i/120%82*400, i/120/82)
			}
		case "sleep":
			ms, _ := strconv.Atoi(words[1])
			time.Sleep(time.Duration(ms) * time.Millisecond)
		}
		fmt.Println("done")
	}
}
