// SPDX-License-Identifier: Apache-2.0

// Asks a server as Grafana does: with Pyroscope's published client (connect-go), one call a run.
//
//	pyroscope_client [-json] [-gzip] [-protocol grpc|grpc-web] [-token T] URL METHOD ARGUMENTS-AS-JSON
//
// Prints the answer as JSON; an error's code and text on standard error, with exit status 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"

	"connectrpc.com/connect"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type withToken struct {
	token     string
	transport http.RoundTripper
}

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	return t.transport.RoundTrip(r)
}

// call makes one from a method of the client and the JSON of its request.
func call[Q, A any, PQ interface {
	*Q
	proto.Message
}, PA interface {
	*A
	proto.Message
}](f func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), text string) (proto.Message, error) {
	q := PQ(new(Q))
	if err := protojson.Unmarshal([]byte(text), q); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	a, err := f(context.Background(), connect.NewRequest((*Q)(q)))
	if err != nil {
		return nil, err
	}
	return PA(a.Msg), nil
}

func main() {
	asJSON := flag.Bool("json", false, "JSON bodies")
	asGzip := flag.Bool("gzip", false, "compressed requests")
	protocol := flag.String("protocol", "connect", "connect, grpc or grpc-web")
	token := flag.String("token", "", "sent as a bearer token")
	flag.Parse()
	url, method, text := flag.Arg(0), flag.Arg(1), flag.Arg(2)
	var options []connect.ClientOption
	if *asJSON {
		options = append(options, connect.WithProtoJSON())
	}
	if *asGzip {
		options = append(options, connect.WithSendGzip())
	}
	transport := &http.Transport{}
	switch *protocol {
	case "grpc":
		// HTTP/2 from the first byte on, as gRPC without TLS has it.
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
		options = append(options, connect.WithGRPC())
	case "grpc-web":
		options = append(options, connect.WithGRPCWeb())
	}
	hc := &http.Client{Transport: withToken{*token, transport}}
	c := querierv1connect.NewQuerierServiceClient(hc, url, options...)
	var a proto.Message
	var err error
	switch method {
	case "ProfileTypes":
		a, err = call[querierv1.ProfileTypesRequest, querierv1.ProfileTypesResponse](c.ProfileTypes, text)
	case "LabelNames":
		a, err = call[typesv1.LabelNamesRequest, typesv1.LabelNamesResponse](c.LabelNames, text)
	case "LabelValues":
		a, err = call[typesv1.LabelValuesRequest, typesv1.LabelValuesResponse](c.LabelValues, text)
	case "Series":
		a, err = call[querierv1.SeriesRequest, querierv1.SeriesResponse](c.Series, text)
	case "SelectMergeStacktraces":
		a, err = call[querierv1.SelectMergeStacktracesRequest, querierv1.SelectMergeStacktracesResponse](c.SelectMergeStacktraces, text)
	case "SelectMergeProfile":
		r := &querierv1.SelectMergeProfileRequest{}
		if err = protojson.Unmarshal([]byte(text), r); err == nil {
			p, e := c.SelectMergeProfile(context.Background(), connect.NewRequest(r))
			if err = e; e == nil {
				a = p.Msg
			}
		}
	case "SelectSeries":
		a, err = call[querierv1.SelectSeriesRequest, querierv1.SelectSeriesResponse](c.SelectSeries, text)
	case "Diff":
		a, err = call[querierv1.DiffRequest, querierv1.DiffResponse](c.Diff, text)
	case "GetProfileStats":
		a, err = call[typesv1.GetProfileStatsRequest, typesv1.GetProfileStatsResponse](c.GetProfileStats, text)
	case "AnalyzeQuery":
		a, err = call[querierv1.AnalyzeQueryRequest, querierv1.AnalyzeQueryResponse](c.AnalyzeQuery, text)
	case "SelectMergeSpanProfile":
		a, err = call[querierv1.SelectMergeSpanProfileRequest, querierv1.SelectMergeSpanProfileResponse](c.SelectMergeSpanProfile, text)
	case "SelectHeatmap":
		a, err = call[querierv1.SelectHeatmapRequest, querierv1.SelectHeatmapResponse](c.SelectHeatmap, text)
	case "Push":
		p := pushv1connect.NewPusherServiceClient(hc, url, options...)
		a, err = call[pushv1.PushRequest, pushv1.PushResponse](p.Push, text)
	default:
		err = fmt.Errorf("no method %q", method)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", connect.CodeOf(err), err)
		os.Exit(1)
	}
	out, err := protojson.Marshal(a)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(out))
}
