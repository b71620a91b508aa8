package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// envoyDocs returns the blocks of docs/envoy.md: a container before and after, limits and a route.
func envoyDocs(t *testing.T) [4]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks [4]string
	found := apitest.YAMLBlock.FindAllSubmatch(page, -1)
	if len(found) != len(blocks) {
		t.Fatalf("%d blocks", len(found))
	}
	for i := range blocks {
		blocks[i] = string(found[i][1])
	}
	return blocks
}

// TestEnvoyDocsContainer: both containers have one environment, which the command reads.
func TestEnvoyDocsContainer(t *testing.T) {
	blocks := envoyDocs(t)
	var environs [2][]string
	for i := range environs {
		var container struct {
			Image   string
			Command []string
			Env     []struct{ Name, Value string }
		}
		if err := yaml.Unmarshal([]byte(blocks[i]), &container); err != nil {
			t.Fatal(err)
		}
		if i == 1 && container.Command != nil {
			t.Error("the command of the image is overridden")
		}
		for _, v := range container.Env {
			environs[i] = append(environs[i], v.Name+"="+v.Value)
		}
	}
	if before, after := environs[0], environs[1]; strings.Join(before, " ") !=
		strings.Join(after, " ") {
		t.Errorf("the environments are %q and %q", before, after)
	}
	s, _, err := envoy.ReadEnvironment(environs[1])
	if err != nil || s.Files == nil || !strings.Contains(s.Store, "redis:6379") {
		t.Errorf("%+v %v", s, err)
	}
}

// TestEnvoyDocsGateway: tokens that are known when a call has ended count even above the limit, and
// keep the tenant from starting the next one.
func TestEnvoyDocsGateway(t *testing.T) {
	blocks := envoyDocs(t)
	var route struct {
		Limits []struct {
			Actions []any
			Done    bool `yaml:"apply_on_stream_done"`
		} `yaml:"rate_limits"`
	}
	if err := yaml.Unmarshal([]byte(blocks[3]), &route); err != nil || len(route.Limits) != 3 ||
		!route.Limits[2].Done || len(route.Limits[2].Actions) != 2 {
		t.Fatalf("%+v %v", route, err)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, file, blocks[2])
	_, log, _ := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0")
	client := rls.NewRateLimitServiceClient(dialEnvoy(t, log))
	descriptor := func(use string, n uint64) *ratelimitv3.RateLimitDescriptor {
		return &ratelimitv3.RateLimitDescriptor{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{
				{Key: "use", Value: use}, {Key: "tenant", Value: "acme"}},
			HitsAddend: wrapperspb.UInt64(n),
		}
	}
	ask := func(descriptors ...*ratelimitv3.RateLimitDescriptor) *rls.RateLimitResponse {
		resp, err := client.ShouldRateLimit(t.Context(),
			&rls.RateLimitRequest{Domain: "llm", Descriptors: descriptors})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	begin := func() *rls.RateLimitResponse {
		return ask(descriptor("tokens", 0), descriptor("requests", 1))
	}
	const allowed, refused = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	for i, left := range []uint32{800, 0} {
		if got := begin(); got.GetOverallCode() != allowed {
			t.Errorf("call %d: %v", i, got)
		}
		used := []uint64{200, 900}[i]
		status := ask(descriptor("tokens", used)).GetStatuses()[0]
		if status.GetLimitRemaining() != left {
			t.Errorf("after call %d: %v, want %d left", i, status, left)
		}
	}
	got := begin()
	if got.GetOverallCode() != refused || got.GetStatuses()[0].GetCode() != refused ||
		got.GetStatuses()[1].GetCode() != allowed {
		t.Errorf("the tenant has no token left: %v", got)
	}
}
