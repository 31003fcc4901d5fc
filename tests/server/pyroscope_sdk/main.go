// SPDX-License-Identifier: Apache-2.0

// A program that Pyroscope's SDK profiles: for some seconds one goroutine waits for a channel that nobody writes to but every
// 100 ms, two have a mutex by turns, each for 50 ms, and one computes for 50 of 100 ms. Arguments: server, name of the application, seconds.
package main

import (
	"log"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/grafana/pyroscope-go"
)

var lock sync.Mutex

func receive(c chan int) {
	for range c {
	}
}

func hold(end time.Time) {
	for time.Now().Before(end) {
		lock.Lock()
		time.Sleep(50 * time.Millisecond)
		lock.Unlock()
	}
}

func compute(end time.Time) (n int) {
	for time.Now().Before(end) {
		for i := range 10000 {
			n += i * i
		}
	}
	return n
}

func main() {
	seconds, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	runtime.SetMutexProfileFraction(1)
	runtime.SetBlockProfileRate(1)
	p, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: os.Args[2],
		ServerAddress:   os.Args[1],
		UploadRate:      time.Second,
		Tags:            map[string]string{"env": "test"},
		ProfileTypes: []pyroscope.ProfileType{pyroscope.ProfileCPU, pyroscope.ProfileMutexCount, pyroscope.ProfileMutexDuration,
			pyroscope.ProfileBlockCount, pyroscope.ProfileBlockDuration},
	})
	if err != nil {
		log.Fatal(err)
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	c := make(chan int)
	var all sync.WaitGroup
	all.Add(3)
	go func() { receive(c); all.Done() }()
	for range 2 {
		go func() { hold(end); all.Done() }()
	}
	for time.Now().Before(end) {
		compute(time.Now().Add(50 * time.Millisecond))
		time.Sleep(50 * time.Millisecond)
		c <- 1
	}
	close(c)
	all.Wait()
	if err := p.Stop(); err != nil {
		log.Fatal(err)
	}
}
