package envoy

import (
	"strings"
	"testing"

	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/truewindow/ratelimit/integration/gateway"
)

// startGateway starts a gateway, and sets the environment of its clients.
func startGateway(t testing.TB) *gateway.Gateway {
	t.Helper()
	const node = "test-node"
	g := gateway.Start(t, "127.0.0.1", node)
	if err := g.Send(); err != nil { // none, so that clients answer
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_NODE_ID": node,
		"CONFIG_GRPC_XDS_SERVER_URL":          g.Addr,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "100ms",
		"FORCE_START_WITHOUT_INITIAL_CONFIG":  "true",
	} {
		t.Setenv(name, value)
	}
	return g
}

// resourceOf returns a domain as a resource.
func resourceOf(d *descriptor) *config.RateLimitConfig {
	return &config.RateLimitConfig{Name: d.Domain, Domain: d.Domain,
		Descriptors: resourcesOf(d.Descriptors)}
}

func resourcesOf(all []*descriptor) (list []*config.RateLimitDescriptor) {
	for _, d := range all {
		r := &config.RateLimitDescriptor{Key: d.Key, Value: d.Value, ShadowMode: d.ShadowMode,
			Descriptors: resourcesOf(d.Descriptors)}
		if l := d.RateLimit; l != nil {
			r.RateLimit = &config.RateLimitPolicy{Name: l.Name, Unlimited: l.Unlimited,
				Unit: config.RateLimitUnit(config.RateLimitUnit_value[strings.ToUpper(l.Unit)])}
			if l.Requests != nil {
				r.RateLimit.RequestsPerUnit = uint32(*l.Requests)
			}
			for _, replaced := range l.Replaces {
				r.RateLimit.Replaces = append(r.RateLimit.Replaces,
					&config.RateLimitReplace{Name: replaced.Name})
			}
		}
		list = append(list, r)
	}
	return list
}
