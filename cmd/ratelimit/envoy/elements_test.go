package envoy

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/encoding/proto"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// TestManyElementsTakeNoMemory: a call of very many empty descriptors or entries is refused before
// it is read, since each takes many times its bytes.
func TestManyElementsTakeNoMemory(t *testing.T) {
	f := start(t, Config{})
	const domain = "\x0a\x04shop"
	descriptors := domain + strings.Repeat("\x12\x00", maxCall/2-10)
	entries := strings.Repeat("\x0a\x00", maxCall/2-20)
	inOne := "\x12" + string(varint(len(entries))) + entries
	took := func(call func()) (bytes uint64) {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		call()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	// The client and the buffers of the server take some copies of the message.
	const most = 16 * maxCall
	for _, method := range []string{rls.RateLimitService_ShouldRateLimit_FullMethodName,
		kuadrant.RateLimitService_Report_FullMethodName,
		kuadrant.RateLimitService_Reserve_FullMethodName} {
		for name, wire := range map[string]string{"descriptors": descriptors,
			"entries": domain + inOne, "not UTF-8": "\x0a\x01\xff" + descriptors[6:],
			"and no field": descriptors + "\x07"} {
			var err error
			bytes := took(func() {
				err = f.conn.Invoke(context.Background(), method, []byte(wire),
					new(rls.RateLimitResponse),
					grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
			})
			if err == nil || !strings.Contains(err.Error(), errElements.Error()) || bytes > most {
				t.Errorf("%s of %s: %v, %d bytes", name, method, err, bytes)
			}
		}
	}
	body := `{"domain":"shop","descriptors":[` + strings.Repeat(`{},`, maxMessage/3-20) + `{}]}`
	var code int
	bytes := took(func() { code = post(f.service.JSON(), http.MethodPost, body).Code })
	if code != http.StatusBadRequest || bytes > 8*maxMessage {
		t.Errorf("JSON: %d, %d bytes", code, bytes)
	}
}

// TestCompressedIsRefused: a message that is compressed is refused before it takes the memory of
// all of it.
func TestCompressedIsRefused(t *testing.T) {
	f := start(t, Config{})
	_, err := f.client.ShouldRateLimit(
		context.Background(), request("user=42"), grpc.UseCompressor(gzip.Name))
	if err == nil || !strings.Contains(err.Error(), errCompressed.Error()) {
		t.Errorf("got %v", err)
	}
	if s := f.service.Stats(); s.Invalid != 1 || !strings.Contains(f.log.String(), "compressed") {
		t.Errorf("%+v, and the log is %q", s, f.log)
	}
	f.call(ok, "user=42")
}

func varint(n int) (text []byte) {
	for ; n >= 0x80; n >>= 7 {
		text = append(text, byte(n)|0x80)
	}
	return append(text, byte(n))
}

// TestMostElements: as many descriptors and entries as a call may have are not too many, nor braces
// in a text.
func TestMostElements(t *testing.T) {
	f := start(t, Config{})
	entry := strings.TrimSuffix(strings.Repeat("user={{\\\"{{,", maxEntries), ",")
	req := request(strings.Fields(strings.Repeat(entry+" ", maxDescriptors))...)
	for _, d := range req.Descriptors {
		d.Limit = override("", 1, 1).Descriptors[0].Limit
	}
	wire, err := protobuf.Marshal(req)
	if err != nil || bytes.Count(wire, []byte("user")) != maxDescriptors*maxEntries {
		t.Fatal(err, len(wire))
	}
	if _, err := f.client.ShouldRateLimit(context.Background(), req); err != nil {
		t.Error(err)
	}
	text := []byte(`{"a":"\\{\"` + strings.Repeat("{", 3*maxElements) + `","b":"{"}`)
	if tooManyObjects(text) {
		t.Error("braces in a text are objects")
	}
}
