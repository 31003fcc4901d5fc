// SPDX-License-Identifier: Apache-2.0

// serve: runs an HTTP server of net/http with JSON and compression, on a free port, until it can read
// standard input. load ADDRESS CLIENTS: sends requests to the server until it can read standard
// input, and prints the number of answers.
package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/ioutil"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
)

type item struct {
	Name  string
	Words []string
	Sum   string
}

func handle(w http.ResponseWriter, r *http.Request) {
	words := strings.Fields(strings.Repeat(r.URL.Path+" the quick brown fox ", 30))
	sort.Strings(words)
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	json.NewEncoder(z).Encode(item{r.URL.Path, words, fmt.Sprintf("%x", sum)})
	z.Close()
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	go http.Serve(listener, http.HandlerFunc(handle))
	os.Stdin.Read(make([]byte, 1))
}

// Sends requests until it can read standard input, then prints the number of answers.
func load(address string, clients int) {
	var answered, end int64
	done := make(chan bool)
	go func() {
		os.Stdin.Read(make([]byte, 1))
		atomic.StoreInt64(&end, 1)
	}()
	for i := 0; i < clients; i++ {
		go func(i int) {
			for atomic.LoadInt64(&end) == 0 {
				r, err := http.Get("http://" + address + "/" + strconv.Itoa(i))
				if err != nil {
					panic(err)
				}
				io.Copy(ioutil.Discard, r.Body)
				r.Body.Close()
				atomic.AddInt64(&answered, 1)
			}
			done <- true
		}(i)
	}
	for i := 0; i < clients; i++ {
		<-done
	}
	fmt.Println(answered)
}

func main() {
	if os.Args[1] == "serve" {
		serve()
		return
	}
	clients, _ := strconv.Atoi(os.Args[3])
	load(os.Args[2], clients)
}
