package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// environmentOf returns the variables of a file of testdata, without its comments.
func environmentOf(t *testing.T, file string) (environ []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			environ = append(environ, strings.TrimSpace(line))
		}
	}
	return environ
}

// TestGateways: the environments of both gateways are taken as they are, and what has no meaning is
// named.
func TestGateways(t *testing.T) {
	for name, tt := range map[string]struct {
		ignored []string
		want    string // server, node and the files of TLS; the store; addresses
	}{
		"envoy-gateway.env": {[]string{"GRPC_SERVER_TLS_CA_CERT",
			"PROMETHEUS_MAPPER_YAML", "TRACING_ENABLED", "TRACING_SAMPLING_RATE",
			"TRACING_SERVICE_INSTANCE_ID", "TRACING_SERVICE_NAME", "TRACING_SERVICE_NAMESPACE"},
			"envoy-gateway:18001 envoy-ratelimit " +
				"&{/certs/tls.crt /certs/tls.key /certs/ca.crt } " +
				"rediss://redis.redis-system.svc.cluster.local:6379" +
				"?tls-cert=%2Fredis-certs%2Ftls.crt&tls-key=%2Fredis-certs%2Ftls.key " +
				" :19001 true"},
		"envoy-ai-gateway.env": {nil,
			"ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local:18002 " +
				"envoy-ai-gateway-ratelimit <nil> " +
				"redis://redis.redis-system.svc.cluster.local:6379 0.0.0.0:8081  false"},
	} {
		t.Run(name, func(t *testing.T) {
			environ := append(environmentOf(t, name), "PATH=/bin", "HOSTNAME=a")
			s, ignored, err := ReadEnvironment(environ)
			if err != nil || s.XDS == nil || s.Files != nil {
				t.Fatalf("%+v %v", s, err)
			}
			if !slices.Equal(ignored, tt.ignored) {
				t.Errorf("without a meaning are %q, want %q", ignored, tt.ignored)
			}
			got := fmt.Sprint(s.XDS.Server, " ", s.XDS.Node, " ", s.XDS.TLS, " ", s.Store, " ",
				s.GRPCAddr, " ", s.MetricsAddr, " ", s.ForceStart)
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
