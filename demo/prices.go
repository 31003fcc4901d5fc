// SPDX-License-Identifier: Apache-2.0

// The price service of the demo: GET /prices?n=N. Labels of runtime/pprof publish the span that a
// goroutine works for, which culprit reads; the span itself is sent as OTLP in JSON.
//
//	prices PORT
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

type object map[string]any

var finished = make(chan object, 1000)

func endpoint() string {
	if e := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); e != "" {
		return e
	}
	return "http://127.0.0.1:4318"
}

func text(key, value string) object {
	return object{"key": key, "value": object{"stringValue": value}}
}

func send() {
	resource := object{"attributes": []object{text("service.name", "prices")}}
	for first := range finished {
		spans := []object{first}
		time.Sleep(500 * time.Millisecond)
		for len(finished) > 0 {
			spans = append(spans, <-finished)
		}
		body, _ := json.Marshal(object{"resourceSpans": []object{{"resource": resource,
			"scopeSpans": []object{{"spans": spans}}}}})
		answer, err := http.Post(endpoint()+"/v1/traces", "application/json", bytes.NewReader(body))
		if err == nil {
			answer.Body.Close()
		}
	}
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Returns the ids in traceparent, or new ones.
func caller(r *http.Request) (trace, parent string) {
	parts := strings.Split(r.Header.Get("traceparent"), "-")
	if len(parts) == 4 && len(parts[1]) == 32 && len(parts[2]) == 16 {
		return parts[1], parts[2]
	}
	return randomHex(16), ""
}

// Wraps a handler in a span.
func traced(route string, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		trace, parent := caller(r)
		span, begin := randomHex(8), time.Now()
		pprof.Do(r.Context(), pprof.Labels("trace_id", trace, "span_id", span),
			func(ctx context.Context) { handler(w, r.WithContext(ctx)) })
		s := object{"traceId": trace, "spanId": span, "parentSpanId": parent,
			"name": "GET " + route, "kind": 2, "status": object{},
			"startTimeUnixNano": strconv.FormatInt(begin.UnixNano(), 10),
			"endTimeUnixNano":   strconv.FormatInt(time.Now().UnixNano(), 10),
			"attributes":        []object{text("http.request.method", "GET"), text("http.route", route)}}
		select {
		case finished <- s:
		default: // the queue is full: drop the span
		}
	}
}

func priceOf(item int) int {
	x := uint64(item) + 1
	for i := 0; i < 5000; i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return int(x % 10000)
}

func prices(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil || n < 0 || n > 10000 {
		http.Error(w, "n: how many, up to 10000", http.StatusBadRequest)
		return
	}
	for i := 0; i < n; i++ {
		fmt.Fprintln(w, priceOf(i))
	}
}

func main() {
	go send()
	http.HandleFunc("/prices", traced("/prices", prices))
	fmt.Fprintln(os.Stderr, http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
	os.Exit(1)
}
