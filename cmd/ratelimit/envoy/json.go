package envoy

import (
	"context"
	"errors"
	"io"
	"net/http"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxMessage is the largest size of a request as JSON in bytes.
const maxMessage = 1 << 20

// JSON returns a handler of POST requests, whose body is a RateLimitRequest as JSON. The answer is
// a RateLimitResponse: 200, or 429 if the call is refused. Without one it is 400 for a request that
// is wrong, such as one that is not UTF-8, and 500 for one that could not be decided.
func (s *Service) JSON() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			fail(w, http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		var req rls.RateLimitRequest
		if err == nil && tooManyObjects(body) {
			err = errElements
		}
		if err == nil {
			err = protojson.Unmarshal(body, &req)
		}
		if err != nil {
			s.counts.calls.Add(1)
			_ = s.invalid("", errors.New("the body is no RateLimitRequest as JSON"))
			fail(w, http.StatusBadRequest)
			return
		}
		ctx := context.WithValue(r.Context(), jsonKey{}, r.RemoteAddr)
		resp, err := s.ShouldRateLimit(ctx, &req)
		switch {
		case status.Code(err) == codes.PermissionDenied:
			fail(w, http.StatusForbidden)
		case status.Code(err) == codes.InvalidArgument:
			fail(w, http.StatusBadRequest)
		case err != nil:
			fail(w, http.StatusInternalServerError)
		default:
			writeJSON(w, resp)
		}
	})
}

func writeJSON(w http.ResponseWriter, resp *rls.RateLimitResponse) {
	text, err := protojson.Marshal(resp)
	if err != nil {
		fail(w, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}

func fail(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }
