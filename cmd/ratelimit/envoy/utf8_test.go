package envoy

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// notUTF8 are texts as headers have them.
var notUTF8 = []string{
	"\xff",             // no character begins so
	"a\x80b",           // nor so
	"\xe2\x82",         // cut
	"\xc3\x28",         // a character that does not go on
	"\xc0\xaf",         // a slash that is too long
	"\xed\xa0\x80",     // half a pair of UTF-16
	"\xf4\x90\x80\x80", // above the last character
	"caf\xe9",          // Latin-1
	"\x93\xfa\x96{",    // Shift JIS
	"%FF\xff/\\xff",
}

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// send calls a method with a message, in which place stands for other bytes of the same length.
func (f *fixture) send(method string, m protobuf.Message, place, text string,
	resp protobuf.Message) error {
	f.Helper()
	wire, err := protobuf.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	if text != "" && !bytes.Contains(wire, []byte(place)) {
		f.Fatalf("%v has no %s", m, place)
	}
	wire = bytes.ReplaceAll(wire, []byte(place), []byte(text))
	return f.conn.Invoke(context.Background(), method, wire, resp,
		grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
}

// place returns a text that stands for another one in a message.
func place(text string) string { return strings.Repeat("Z", len(text)) }

// take asks Envoy's method for a unit of an entry user.
func (f *fixture) take(value string) (*rls.RateLimitResponse, error) {
	f.Helper()
	resp := new(rls.RateLimitResponse)
	err := f.send(rls.RateLimitService_ShouldRateLimit_FullMethodName,
		request("user="+place(value)), place(value), value, resp)
	return resp, err
}

// TestNotUTF8IsLimited: a value that is not UTF-8 is limited as others, apart from all others, and
// also from those by which it is shown.
func TestNotUTF8IsLimited(t *testing.T) {
	headers := DefaultHeaders()
	f := start(t, Config{DynamicMetadata: true, ResponseHeaders: &headers})
	values := notUTF8
	for _, text := range notUTF8 {
		values = append(values, EscapeInvalid(text), strings.ToValidUTF8(text, "\uFFFD"),
			fmt.Sprintf("%%%X", text))
	}
	seen := make(map[string]bool)
	for _, value := range values {
		if seen[value] {
			continue
		}
		seen[value] = true
		for i := range 11 {
			resp, err := f.take(value)
			want := ok
			if i == 10 {
				want = over
			}
			if err != nil || resp.GetOverallCode() != want {
				t.Fatalf("call %d of %q: %v %v, want %v", i, value, resp, err, want)
			}
			entries := resp.GetDynamicMetadata().GetFields()["descriptors"].String()
			if !strings.Contains(entries, "user=") || !utf8.ValidString(entries) {
				t.Errorf("the metadata is %v", resp.GetDynamicMetadata())
			}
		}
	}
	if got := f.service.Stats(); got.NotUTF8 != int64(11*len(notUTF8)) || got.Invalid != 0 {
		t.Errorf("%+v", got)
	}
}

// TestNotUTF8 sends texts that are not UTF-8 in each field of each method.
func TestNotUTF8(t *testing.T) {
	const service = "/kuadrant.service.ratelimit.v1.RateLimitService/"
	f := start(t, Config{DynamicMetadata: true}, budgetLimit("tokens", day))
	requestOf := func(domain, entry string) *rls.RateLimitRequest {
		req := request(entry)
		req.Domain = domain
		return req
	}
	for _, text := range notUTF8 {
		p := place(text)
		for field, in := range map[string][2]string{
			"domain": {p, "tokens=a"}, "key": {"shop", p + "=a"}, "value": {"shop", "tokens=" + p},
			"all": {p, p + "=" + p},
		} {
			req := requestOf(in[0], in[1])
			reserve := &kuadrant.ReserveRequest{Domain: in[0], Descriptors: req.GetDescriptors(),
				Amount: 1, Ttl: durationpb.New(day)}
			commit := &kuadrant.CommitRequest{Domain: in[0], Descriptors: req.GetDescriptors(),
				ReservationId: p, ActualAmount: 1}
			for method, m := range map[string]protobuf.Message{
				rls.RateLimitService_ShouldRateLimit_FullMethodName: req,
				service + "CheckRateLimit":                          req, service + "Report": req,
				service + "Reserve": reserve, service + "Commit": commit,
			} {
				var resp protobuf.Message = new(rls.RateLimitResponse)
				switch m {
				case reserve:
					resp = new(kuadrant.ReserveResponse)
				case commit:
					resp = new(kuadrant.CommitResponse)
				}
				before := f.service.Stats()
				if err := f.send(method, m, p, text, resp); err != nil {
					t.Errorf("%s, %q in %s: %v", method, text, field, err)
				}
				after := f.service.Stats()
				if after.NotUTF8 != before.NotUTF8+1 || after.OK != before.OK+1 ||
					after.Calls != before.Calls+1 {
					t.Errorf("%s, %q in %s: %+v, before %+v", method, text, field, after, before)
				}
				if r, is := resp.(*kuadrant.ReserveResponse); is && field == "value" &&
					r.GetReservationId() == "" {
					t.Errorf("%q: nothing is held", text)
				}
			}
		}
	}
}

// TestReadBytes: a message with a text that is not UTF-8 keeps all that it has.
func TestReadBytes(t *testing.T) {
	req := request("user=Z,path=/", "user=é")
	req.HitsAddend = 7
	req.Descriptors[1].HitsAddend = used("", 9).GetDescriptors()[0].GetHitsAddend()
	req.Descriptors[0].IsNegativeHits = true
	req.ProtoReflect().SetUnknown([]byte{0xd2, 0x06, 0x03, 'Z', 0xff, 'a'}) // field 106
	wire, err := protobuf.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	got := new(rls.RateLimitRequest)
	if err := readBytes(got.ProtoReflect(), wire); err != nil || !protobuf.Equal(got, req) {
		t.Errorf("%v, want %v", got, req)
	}
	for n := range wire { // cut, it is an error or a part, and no panic
		_ = readBytes(new(rls.RateLimitRequest).ProtoReflect(), wire[:n])
	}
}

// TestUnreadable: what cannot be read at all, or is too long, is counted, and logged now and then.
func TestUnreadable(t *testing.T) {
	f := start(t, Config{})
	resp := new(rls.RateLimitResponse)
	long := strings.Repeat("v", maxCall)
	for _, c := range []struct {
		wire string
		want codes.Code
	}{
		{"\x0a\x05a", codes.Internal}, {"\x12\x05\x0a\x7fab\xff", codes.Internal},
		{"\x0a\xff" + long, codes.Internal},
	} {
		err := f.conn.Invoke(t.Context(), rls.RateLimitService_ShouldRateLimit_FullMethodName,
			[]byte(c.wire), resp,
			grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
		if status.Code(err) != c.want {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	if got := f.service.Stats(); got.Calls != 3 || got.Invalid != 3 || got.NotUTF8 != 0 {
		t.Errorf("%+v", got)
	}
	if log := f.log.String(); strings.Count(log, "call not valid") != 1 {
		t.Errorf("the log is %s", log)
	}
}

// TestLongHeader: the longest header of Envoy in many descriptors is decided.
func TestLongHeader(t *testing.T) {
	f := start(t, Config{})
	req := &rls.RateLimitRequest{Domain: "shop"}
	for range 60 {
		d := descriptor("user=" + strings.Repeat("v", 60<<10))
		req.Descriptors = append(req.Descriptors, d)
	}
	f.expect(over, req) // 60 units of 10
}

func TestEscapeInvalid(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "é\uFFFD\\xff": "é\uFFFD\\xff", "caf\xe9": `caf\xe9`,
		"\xe2\x82a\x00": `\xe2\x82a` + "\x00",
	} {
		if got := EscapeInvalid(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
