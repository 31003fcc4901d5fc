// SPDX-License-Identifier: Apache-2.0
// A Go program that asks a server for SkyWalking's tasks of pprof and runs them, with runtime/pprof and grpc-go,
// and messages by the published numbers of their fields (skywalking.v10): SkyWalking's agent for Go with pprof
// is not on the module proxy.
//
//	skywalking_go ADDRESS SERVICE INSTANCE SECONDS TASKS
//
// SECONDS: what a minute of a task is here. It ends when it has sent that many tasks.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

const service = "/skywalking.v10.PprofTask/"

// Messages are bytes.
type raw struct{}

func (raw) Name() string                  { return "proto" }
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

func text(to []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), s)
}

func number(to []byte, field protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), uint64(n))
}

func bytesOf(to []byte, field protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), b)
}

// The parts of a message that have a length, by field; nil where it is damaged.
func parts(b []byte) map[protowire.Number][][]byte {
	out := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		if kind == protowire.BytesType {
			v, m := protowire.ConsumeBytes(b[n:])
			if m < 0 {
				return nil
			}
			out[field] = append(out[field], v)
			b = b[n+m:]
			continue
		}
		m := protowire.ConsumeFieldValue(field, kind, b[n:])
		if m < 0 {
			return nil
		}
		b = b[n+m:]
	}
	return out
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ---- what is profiled ----

var kept [][]byte
var lock sync.Mutex

//go:noinline
func spin(end time.Time) (h uint64) {
	for time.Now().Before(end) {
		for i := uint64(0); i < 100000; i++ {
			h = (h ^ i) * 0x9e3779b97f4a7c15
		}
	}
	return h
}

//go:noinline
func allocate() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
}

//go:noinline
func contend(end time.Time) {
	for time.Now().Before(end) {
		lock.Lock()
		time.Sleep(time.Millisecond)
		lock.Unlock()
	}
}

func work(end time.Time) {
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Go(func() { contend(end) })
	}
	spin(end)
	all.Wait()
}

func record(event string, period int, took time.Duration) []byte {
	var out bytes.Buffer
	end := time.Now().Add(took)
	switch event {
	case "cpu":
		fail(pprof.StartCPUProfile(&out))
		work(end)
		pprof.StopCPUProfile()
	case "heap":
		allocate()
		runtime.GC()
		fail(pprof.WriteHeapProfile(&out))
	case "block":
		runtime.SetBlockProfileRate(period)
		work(end)
		runtime.SetBlockProfileRate(0)
		fail(pprof.Lookup(event).WriteTo(&out, 0))
	case "mutex":
		runtime.SetMutexProfileFraction(period)
		work(end)
		runtime.SetMutexProfileFraction(0)
		fail(pprof.Lookup(event).WriteTo(&out, 0))
	default:
		fail(pprof.Lookup(event).WriteTo(&out, 0))
	}
	return out.Bytes()
}

// ---- the agent ----

type agent struct {
	c                 *grpc.ClientConn
	service, instance string
	last              int64
}

func (a *agent) ask() map[string]string {
	var answer []byte
	q := number(text(text(nil, 1, a.service), 2, a.instance), 3, a.last)
	fail(a.c.Invoke(context.Background(), service+"getPprofTaskCommands", &q, &answer))
	for _, command := range parts(answer)[1] {
		arguments := map[string]string{}
		for _, pair := range parts(command)[2] {
			p := parts(pair)
			arguments[string(p[1][0])] = string(p[2][0])
		}
		a.last, _ = strconv.ParseInt(arguments["CreateTime"], 10, 64)
		return arguments
	}
	return nil
}

func (a *agent) send(task string, profile []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := a.c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, service+"collect")
	fail(err)
	meta := number(text(text(text(nil, 1, a.service), 2, a.instance), 3, task), 5, int64(len(profile)))
	first := bytesOf(nil, 1, meta)
	fail(s.SendMsg(&first))
	var answer []byte
	fail(s.RecvMsg(&answer))
	if len(answer) > 0 {
		fail(fmt.Errorf("the server refuses the profile: %x", answer))
	}
	for len(profile) > 0 {
		n := min(len(profile), 1000)
		part := bytesOf(nil, 3, profile[:n])
		fail(s.SendMsg(&part))
		profile = profile[n:]
	}
	fail(s.CloseSend())
	if err := s.RecvMsg(&answer); err == nil || err.Error() != "EOF" {
		fail(fmt.Errorf("the end of the call: %v", err))
	}
}

func main() {
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	fail(err)
	tasks, err := strconv.Atoi(os.Args[5])
	fail(err)
	c, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	fail(err)
	a := &agent{c: c, service: os.Args[2], instance: os.Args[3], last: -1}
	for end := time.Now().Add(time.Minute); tasks > 0; {
		t := a.ask()
		if t == nil {
			if time.Now().After(end) {
				fail(fmt.Errorf("no task for a minute"))
			}
			time.Sleep(100 * time.Millisecond)
			continue
		}
		minutes, _ := strconv.ParseFloat(t["Duration"], 64)
		period, _ := strconv.Atoi(t["DumpPeriod"])
		a.send(t["TaskId"], record(t["Events"], period, time.Duration(minutes*seconds*1e9)))
		tasks--
	}
}
