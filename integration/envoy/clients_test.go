package envoy

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/truewindow/ratelimit/integration/servers"
)

const clientsFile = `
domain: api
descriptors:
  - key: generic_key
    value: checkout
    descriptors:
      - key: remote_address
        descriptors:
          - {key: header_match, value: slow, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 5}}
`

// startClients starts the service with clientsFile.
func startClients(t *testing.T) *service {
	t.Helper()
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr,
		map[string]string{"api.yaml": clientsFile})
	return startOurs(t)
}

// TestTheirClient: the client of envoyproxy/ratelimit understands the service.
func TestTheirClient(t *testing.T) {
	client := reference(t, "client_cmd")
	s := startClients(t)
	ask := func() string {
		out, err := exec.CommandContext(t.Context(), client, "-dial_string", s.addr,
			"-domain", "api", "-descriptors",
			"generic_key=checkout,remote_address=192.0.2.1,header_match=slow").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	var got []bool
	for range 3 {
		got = append(got, strings.Contains(ask(), "overall_code:OK"))
	}
	if !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("admitted: %v", got)
	}
	if answer := ask(); !strings.Contains(answer, "overall_code:OVER_LIMIT") ||
		!strings.Contains(answer, "requests_per_unit:2") {
		t.Errorf("the client prints %s", answer)
	}
}

// TestReflection: a client that knows no protocol but reflection calls the service.
func TestReflection(t *testing.T) {
	s := startClients(t)
	const method = "envoy.service.ratelimit.v3.RateLimitService"
	descriptor, err := s.reflected(t, method).FindDescriptorByName(method)
	if err != nil {
		t.Fatal(err)
	}
	m := descriptor.(protoreflect.ServiceDescriptor).Methods().ByName("ShouldRateLimit")
	req, resp := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := protojson.Unmarshal([]byte(`{"domain": "api", "descriptors": [
		{"entries": [{"key": "remote_address", "value": "192.0.2.2"}]}]}`), req); err != nil {
		t.Fatal(err)
	}
	err = s.conn.Invoke(t.Context(), "/"+method+"/ShouldRateLimit", req, resp)
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.Marshal(resp)
	if err != nil {
		t.Fatal(err)
	}
	// protojson adds spaces at random.
	if got := strings.ReplaceAll(string(text), " ", ""); !strings.Contains(got,
		`"overallCode":"OK"`) || !strings.Contains(got, `"limitRemaining":4`) {
		t.Errorf("the answer is %s", got)
	}
}

// reflected returns the files that the service has for a symbol.
func (s *service) reflected(t *testing.T, symbol string) protodesc.Resolver {
	t.Helper()
	stream, err := reflection.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	have := make(map[string]bool)
	wanted := []*reflection.ServerReflectionRequest{{
		MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{
			FileContainingSymbol: symbol},
	}}
	for len(wanted) > 0 {
		if err := stream.Send(wanted[0]); err != nil {
			t.Fatal(err)
		}
		wanted = wanted[1:]
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
			file := new(descriptorpb.FileDescriptorProto)
			if err := proto.Unmarshal(b, file); err != nil {
				t.Fatal(err)
			}
			if have[file.GetName()] {
				continue
			}
			have[file.GetName()] = true
			set.File = append(set.File, file)
			for _, name := range file.GetDependency() {
				wanted = append(wanted, &reflection.ServerReflectionRequest{
					MessageRequest: &reflection.ServerReflectionRequest_FileByFilename{
						FileByFilename: name}})
			}
		}
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestFilter: requests as Envoy's filter sends them are decided within the 20ms for which it waits.
// On a busy machine some take longer; then Envoy has no answer, and the client gets its own error.
func TestFilter(t *testing.T) {
	s := startClients(t)
	const timeout = 20 * time.Millisecond
	late, tries := 0, 200
	for i := range tries {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		resp, err := s.ShouldRateLimit(ctx, call("api",
			of("generic_key", "checkout", "remote_address", "192.0.2.3", "header_match", "slow"),
			of("generic_key", "checkout"), of("remote_address", "192.0.2.3")),
			grpc.WaitForReady(true))
		cancel()
		switch code := status.Code(err); {
		case code == codes.DeadlineExceeded || code == codes.Unavailable:
			late++
		case err != nil:
			t.Fatal(err)
		case i > late+2 && (resp.GetOverallCode() != over || len(resp.GetStatuses()) != 3):
			t.Fatalf("call %d: %v", i, resp)
		}
	}
	servers.Measured("of %d requests with a timeout of %v, %d were late", tries, timeout, late)
	if late > tries*3/4 {
		t.Errorf("%d of %d requests were late: this test proves nothing", late, tries)
	}
}
