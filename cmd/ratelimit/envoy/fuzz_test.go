package envoy

import (
	"net/http"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

func fuzzed(f *testing.F) *Service {
	store, err := memorystore.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { store.Close() })
	defaults := DefaultHeaders()
	return newService(f, store, Config{
		ResponseHeaders: &defaults, RequestHeaders: &defaults, DynamicMetadata: true,
	}, new(strings.Builder))
}

func seeds() []*rls.RateLimitRequest {
	other := override("user=42,path=/", 3, typev3.RateLimitUnit_HOUR)
	other.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(2)
	hits := request("plan=a", "tried=1", "special=1")
	hits.Descriptors[0].HitsAddend = wrapperspb.UInt64(1 << 63)
	hits.Descriptors[1].IsNegativeHits = true
	hits.HitsAddend = 1<<32 - 1
	return []*rls.RateLimitRequest{request("user=42"), other, hits, {}}
}

// Whatever bytes arrive as a message, the answer has a status for each descriptor and can be
// written, or the error is an InvalidArgument.
func FuzzMessage(f *testing.F) {
	service := fuzzed(f)
	for _, seed := range seeds() {
		message, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(message)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		var req rls.RateLimitRequest
		if proto.Unmarshal(message, &req) != nil {
			return
		}
		resp, err := service.ShouldRateLimit(t.Context(), &req)
		if err != nil {
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		checkResponse(t, &req, resp)
	})
}

func checkResponse(t *testing.T, req *rls.RateLimitRequest, resp *rls.RateLimitResponse) {
	if _, err := proto.Marshal(resp); err != nil {
		t.Fatal(err)
	}
	refused := false
	for _, s := range resp.GetStatuses() {
		refused = refused || s.GetCode() == over
		least := int64(0)
		if s.GetCode() == over {
			least = 1
		}
		reset := s.GetDurationUntilReset()
		if s.GetCode() != ok && s.GetCode() != over ||
			reset != nil && (reset.GetNanos() != 0 || reset.GetSeconds() < least) {
			t.Errorf("%v", s)
		}
	}
	if len(resp.GetStatuses()) != len(req.GetDescriptors()) ||
		refused != (resp.GetOverallCode() == over) {
		t.Errorf("%v", resp)
	}
	if resp.GetDynamicMetadata() == nil {
		t.Error("no metadata")
	}
}

// Whatever is posted, the answer is JSON, or one of the statuses without one.
func FuzzJSON(f *testing.F) {
	handler := fuzzed(f).JSON()
	for _, seed := range seeds() {
		f.Add(protojson.Format(seed))
	}
	f.Add(`{"domain":"shop","descriptors":[null,{"entries":[{}]}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		w := post(handler, http.MethodPost, body)
		switch w.Code {
		case 200, 429:
			var resp rls.RateLimitResponse
			if err := protojson.Unmarshal(w.Body.Bytes(), &resp); err != nil {
				t.Errorf("%s: %v", w.Body, err)
			}
		case 400:
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
