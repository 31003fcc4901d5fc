// SPDX-License-Identifier: Apache-2.0

// Requests that go from goroutine to goroutine, with their span in labels by the standard library, and
// a log of which span did what: golabels SECONDS WORKERS LOG STYLE. See ../spans.c.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"
)

type request struct {
	trace [16]byte
	span  [8]byte
	stage int
}

var sink uint64

//go:noinline
func burn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for i := uint64(0); i < 200; i++ {
			sink += i * i
		}
	}
}

//go:noinline
func work_0() { burn(1500 * time.Microsecond); sink++ }

//go:noinline
func work_1() { burn(1500 * time.Microsecond); sink++ }

//go:noinline
func work_2() { burn(1500 * time.Microsecond); sink++ }

//go:noinline
func work_3() { burn(1500 * time.Microsecond); sink++ }

//go:noinline
func idle_work() { burn(300 * time.Microsecond); sink++ }

var works = []func(){work_0, work_1, work_2, work_3}

func fresh() *request {
	r := &request{}
	rand.Read(r.trace[:])
	rand.Read(r.span[:])
	return r
}

func labels(r *request, style string) pprof.LabelSet {
	route := fmt.Sprintf("/pay/%d", r.span[7]%4)
	trace, span := hex.EncodeToString(r.trace[:]), hex.EncodeToString(r.span[:])
	switch style {
	case "decimal":
		n := strconv.FormatUint(binary.BigEndian.Uint64(r.span[:]), 10)
		return pprof.Labels("span id", n, "local root span id", n, "trace id", trace, "trace endpoint", route)
	case "many":
		l := []string{"trace_id", trace, "span_id", span}
		for i := 0; i < 9; i++ {
			l = append(l, fmt.Sprintf("label%d", i), "x")
		}
		return pprof.Labels(l...)
	}
	return pprof.Labels("http.route", route, "span_id", span, "span_name", "GET /pay", "trace_id", trace)
}

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	workers, _ := strconv.Atoi(os.Args[2])
	log, err := os.Create(os.Args[3])
	if err != nil {
		panic(err)
	}
	var lock sync.Mutex
	var all sync.WaitGroup
	queue := make(chan *request, workers)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for i := 0; i < workers; i++ {
		queue <- fresh()
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				r := <-queue
				n := int(r.span[7] % 4)
				if os.Args[4] == "none" {
					works[n]()
				} else {
					pprof.Do(context.Background(), labels(r, os.Args[4]), func(context.Context) { works[n]() })
				}
				lock.Lock()
				fmt.Fprintf(log, "%x %x %d 0\n", r.trace, r.span, n)
				lock.Unlock()
				idle_work()
				if r.stage++; r.stage == 2 {
					r = fresh()
				}
				queue <- r
			}
		}()
	}
	all.Wait()
	log.Close()
}
