// SPDX-License-Identifier: Apache-2.0

// A receiver of OTLP profiles on the OpenTelemetry Collector's messages and service (pdata/pprofile)
// that behaves as it is told, and a judge of what it got.
//
//	otlp_sink serve DIR [CERT KEY]
//	otlp_sink check FILE...
//	otlp_sink show FILE...
//	otlp_sink json FILE...
//
// serve prints its two ports ("grpc N", "http N", "ready"), then a line for each request, and keeps
// its body in DIR. How to answer is read from standard input, a line a request, the last one stays:
//
//	ok | partial N | status CODE | retry CODE MS | http CODE SECONDS | hang
//
// and said again ("told ...") once it counts.
//
// check tells what is against the rules of opentelemetry-proto (written from its text and from what
// sig-profiling's profcheck looks at); show prints a request with all indices resolved, sorted; json prints it
// as OTLP's JSON.
package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

type sink struct {
	pprofileotlp.UnimplementedGRPCServer
	dir     string
	mu      sync.Mutex
	answers []string
	n       int
}

func (s *sink) listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		s.mu.Lock()
		s.answers = append(s.answers, lines.Text())
		fmt.Println("told", lines.Text())
		s.mu.Unlock()
	}
	os.Exit(0)
}

func (s *sink) next() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) == 0 {
		return []string{"ok"}
	}
	a := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return strings.Fields(a)
}

// Only what is acknowledged is kept.
func (s *sink) keep(how string, r pprofileotlp.ExportRequest, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := r.MarshalProto()
	if err != nil {
		panic(err)
	}
	name := filepath.Join(s.dir, fmt.Sprintf("%04d.otlp", s.n))
	s.n++
	if err := os.WriteFile(name, body, 0o600); err != nil {
		panic(err)
	}
	fmt.Println("got", how, name, note)
}

func number(words []string, i int) int {
	n, err := strconv.Atoi(words[i])
	if err != nil {
		panic(err)
	}
	return n
}

func response(answer []string) pprofileotlp.ExportResponse {
	r := pprofileotlp.NewExportResponse()
	if answer[0] == "partial" {
		r.PartialSuccess().SetRejectedProfiles(int64(number(answer, 1)))
		r.PartialSuccess().SetErrorMessage("some were wrong")
	}
	return r
}

func (s *sink) Export(ctx context.Context, r pprofileotlp.ExportRequest) (
	pprofileotlp.ExportResponse, error) {
	answer := s.next()
	token := ""
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		token = strings.Join(md.Get("authorization"), ",") + strings.Join(md.Get("x-tenant"), ",")
	}
	switch answer[0] {
	case "hang":
		fmt.Println("hang")
		<-ctx.Done()
		return response(answer), ctx.Err()
	case "status":
		fmt.Println("status", answer[1])
		return response(answer), status.Error(codes.Code(number(answer, 1)), "as told, 100 %")
	case "retry":
		fmt.Println("retry", answer[1])
		st, err := status.New(codes.Code(number(answer, 1)), "later").WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(
				time.Duration(number(answer, 2)) * time.Millisecond)})
		if err != nil {
			panic(err)
		}
		return response(answer), st.Err()
	}
	s.keep("grpc", r, token)
	return response(answer), nil
}

func (s *sink) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method != "POST" || q.URL.Path != "/v1development/profiles" ||
		q.Header.Get("Content-Type") != "application/x-protobuf" {
		fmt.Println("wrong", q.Method, q.URL.Path, q.Header.Get("Content-Type"))
		http.Error(w, "no", http.StatusNotFound)
		return
	}
	var body io.Reader = q.Body
	if q.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	r := pprofileotlp.NewExportRequest()
	if err == nil {
		err = r.UnmarshalProto(data)
	}
	if err != nil {
		fmt.Println("wrong", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := s.next()
	switch answer[0] {
	case "hang":
		fmt.Println("hang")
		<-q.Context().Done()
		return
	case "http":
		fmt.Println("http", answer[1])
		if len(answer) > 2 {
			w.Header().Set("Retry-After", answer[2])
		}
		w.WriteHeader(number(answer, 1))
		return
	}
	s.keep("http", r, q.Header.Get("Authorization")+q.Header.Get("X-Tenant"))
	out, _ := response(answer).MarshalProto()
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(out)
}

func serve(args []string) error {
	s := &sink{dir: args[0]}
	port := func(env string) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv(env))
		if err != nil {
			panic(err)
		}
		return l
	}
	g, h := port("GRPC_PORT"), port("HTTP_PORT")
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(4 << 20)}
	if len(args) > 2 {
		cert, err := tls.LoadX509KeyPair(args[1], args[2])
		if err != nil {
			return err
		}
		config := &tls.Config{Certificates: []tls.Certificate{cert}}
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
		h = tls.NewListener(h, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	fmt.Println("grpc", g.Addr().(*net.TCPAddr).Port)
	fmt.Println("http", h.Addr().(*net.TCPAddr).Port)
	fmt.Println("ready")
	server := grpc.NewServer(options...)
	pprofileotlp.RegisterGRPCServer(server, s)
	go s.listen()
	go http.Serve(h, s)
	return server.Serve(g)
}

func read(name string) (pprofileotlp.ExportRequest, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return pprofileotlp.ExportRequest{}, err
	}
	r := pprofileotlp.NewExportRequest()
	return r, r.UnmarshalProto(data)
}

func each(names []string, f func(name string, r pprofileotlp.ExportRequest) error) error {
	var all error
	for _, name := range names {
		r, err := read(name)
		if err == nil {
			err = f(name, r)
		}
		all = errors.Join(all, err)
	}
	return all
}

func main() {
	var err error
	switch {
	case len(os.Args) > 2 && os.Args[1] == "serve":
		err = serve(os.Args[2:])
	case len(os.Args) > 2 && os.Args[1] == "check":
		err = each(os.Args[2:], check)
	case len(os.Args) > 2 && os.Args[1] == "show":
		err = each(os.Args[2:], show)
	case len(os.Args) > 2 && os.Args[1] == "json":
		err = each(os.Args[2:], func(_ string, r pprofileotlp.ExportRequest) error {
			out, err := r.MarshalJSON()
			fmt.Println(string(out))
			return err
		})
	default:
		err = errors.New("serve, check or show")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
