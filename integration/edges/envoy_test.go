package edges

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	extauthz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	manager "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/truewindow/ratelimit/integration/daemon"
)

// An authorizer is what ext_authz of Envoy is to send, and to pass on to clients.
type authorizer struct {
	prefix             string
	allowed            []string          // headers of clients, besides Authorization
	replaced           map[string]string // headers
	removed            []string
	onRefusal, onAllow []string // nil: all
}

// envoyYAML returns the filter of envoy.yaml, which Envoy's own checks find valid.
func envoyYAML(t *testing.T) authorizer {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(readConfiguration(t, "envoy.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	var b bootstrap.Bootstrap
	if err := protojson.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	var m manager.HttpConnectionManager
	var f extauthz.ExtAuthz
	listener := b.GetStaticResources().GetListeners()[0]
	err = listener.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(&m)
	if err == nil {
		err = m.GetHttpFilters()[0].GetTypedConfig().UnmarshalTo(&f)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, checked := range []interface{ ValidateAll() error }{&b, &m, &f} {
		if err := checked.ValidateAll(); err != nil {
			t.Error(err)
		}
	}
	server := f.GetHttpService().GetServerUri()
	if !m.GetUseRemoteAddress().GetValue() || f.GetFailureModeAllow() ||
		f.GetStatusOnError().GetCode() != http.StatusServiceUnavailable ||
		server.GetTimeout().GetSeconds() != 2 || server.GetCluster() != "limits" {
		t.Errorf("%v", &f)
	}
	return authorizer{prefix: f.GetHttpService().GetPathPrefix(),
		allowed: exactly(t, f.GetAllowedHeaders()), removed: exactly(t, f.GetDisallowedHeaders()),
		onAllow: exactly(t,
			f.GetHttpService().GetAuthorizationResponse().GetAllowedClientHeadersOnSuccess())}
}

func exactly(t *testing.T, list *matcher.ListStringMatcher) (names []string) {
	t.Helper()
	for _, p := range list.GetPatterns() {
		if p.GetExact() == "" {
			t.Errorf("%v is not exact", p)
		}
		names = append(names, p.GetExact())
	}
	return names
}

// istioYAML returns the provider of istio.yaml, which has only fields of Istio's MeshConfig.
func istioYAML(t *testing.T) authorizer {
	t.Helper()
	first, second, _ := strings.Cut(readConfiguration(t, "istio.yaml"), "\n---\n")
	var mesh struct {
		MeshConfig struct {
			ExtensionProviders []struct {
				Name              string `json:"name"`
				EnvoyExtAuthzHTTP struct {
					Service       string            `json:"service"`
					Port          int               `json:"port"`
					PathPrefix    string            `json:"pathPrefix"`
					Timeout       string            `json:"timeout"`
					FailOpen      bool              `json:"failOpen"`
					StatusOnError string            `json:"statusOnError"`
					Included      []string          `json:"includeRequestHeadersInCheck"`
					Additional    map[string]string `json:"includeAdditionalHeadersInCheck"`
					OnDeny        []string          `json:"headersToDownstreamOnDeny"`
					OnAllow       []string          `json:"headersToDownstreamOnAllow"`
				} `json:"envoyExtAuthzHttp"`
			} `json:"extensionProviders"`
		} `json:"meshConfig"`
	}
	if err := yaml.UnmarshalStrict([]byte(first), &mesh); err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Spec struct {
			Action   string
			Provider struct{ Name string }
			Rules    []map[string]any
		}
	}
	if err := yaml.Unmarshal([]byte(second), &policy); err != nil {
		t.Fatal(err)
	}
	provider := mesh.MeshConfig.ExtensionProviders[0]
	p := provider.EnvoyExtAuthzHTTP
	if policy.Spec.Action != "CUSTOM" || policy.Spec.Provider.Name != provider.Name ||
		len(policy.Spec.Rules) != 1 || len(policy.Spec.Rules[0]) != 0 || p.FailOpen ||
		p.StatusOnError != "503" || p.Timeout != "2s" || p.Port != 80 ||
		p.Service != "ratelimit.default.svc.cluster.local" {
		t.Errorf("%+v %+v", policy, provider)
	}
	return authorizer{prefix: p.PathPrefix, allowed: p.Included, replaced: p.Additional,
		onRefusal: p.OnDeny, onAllow: p.OnAllow}
}

// ask sends what Envoy sends to a daemon about a request of a client, and returns what the client
// gets: 200 with the fields of the answer that it is shown, or the refusal. It is composed from the
// sources of Envoy: the filter's HTTP client puts the prefix before the path, and the client that
// it uses appends an address of Envoy's to X-Forwarded-For.
func (a authorizer) ask(t *testing.T, addr, method, target, from string, sent http.Header) (
	status int, shown http.Header,
) {
	t.Helper()
	r := &http.Request{Method: method, Host: "app.example.org", Header: http.Header{},
		URL: &url.URL{Scheme: "http", Host: addr, Opaque: a.prefix + target}}
	for name, values := range sent {
		name = strings.ToLower(name)
		if (slices.Contains(a.allowed, name) || name == "authorization") &&
			!slices.Contains(a.removed, name) {
			r.Header.Set(name, strings.Join(values, ","))
		}
	}
	if slices.Contains(a.allowed, "x-forwarded-for") {
		before := r.Header.Get("X-Forwarded-For")
		r.Header.Set("X-Forwarded-For", strings.TrimPrefix(before+","+from, ","))
	}
	r.Header.Set("X-Forwarded-For", r.Header.Get("X-Forwarded-For")+",127.0.0.1")
	for name, value := range a.replaced {
		r.Header.Set(name, value)
	}
	if strings.Contains(r.Header.Get("Authorization"), "secret") || r.Header.Get("Cookie") != "" {
		t.Errorf("the daemon gets %v", r.Header)
	}
	res, err := client.Do(r.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	shown = http.Header{}
	list := a.onAllow
	if res.StatusCode != http.StatusOK {
		list = a.onRefusal
	}
	for name, values := range res.Header {
		if slices.Contains(list, strings.ToLower(name)) ||
			list == nil && res.StatusCode != http.StatusOK {
			shown[name] = values
		}
	}
	return res.StatusCode, shown
}

// TestEnvoy: a daemon limits what Envoy's ext_authz sends of a request, as envoy.yaml and
// istio.yaml let it send, by client, header and path, whatever the client sends; clients get the
// wait, and see what remains. Envoy itself is not run.
func TestEnvoy(t *testing.T) {
	for file, of := range map[string]func(*testing.T) authorizer{
		"envoy.yaml": envoyYAML, "istio.yaml": istioYAML,
	} {
		t.Run(file, func(t *testing.T) {
			a := of(t)
			d := daemon.Start(t, daemon.Build(t), "--config="+limitsFile(t, serviceLimits),
				"--forward-auth=envoy", "--entry=tenant=X-Tenant",
				"--trusted-proxy=127.0.0.1/32")
			addr := "127.0.0.1:" + d.Port()
			forgeries := []http.Header{
				{"X-Forwarded-For": {"203.0.113.1", "203.0.113.2"}},
				{"X-Forwarded-Uri": {"/free"}, "X-Forwarded-Host": {"free.example"}},
				{"X-Original-Url": {"https://a/free"}, "X-Original-Method": {"OPTIONS"}},
				{"X-Envoy-Original-Path": {"/free"}, "X-Envoy-External-Address": {"203.0.113.3"}},
				{"Authorization": {"Bearer secret"}, "Cookie": {"secret"}},
				{"Forwarded": {"for=203.0.113.4"}, "X-Real-Ip": {"203.0.113.4"}},
				{"Origin": {"https://elsewhere.example"}, "Sec-Fetch-Site": {"cross-site"}}, nil,
			}
			for i, forged := range forgeries {
				target := []string{"/client?refused=401", "/client/%2e%2e/client"}[i%2]
				status, shown := a.ask(t, addr, "POST", target, "198.51.100.3", forged)
				want := http.StatusOK
				if i >= limit {
					want = http.StatusTooManyRequests
				}
				if status != want || !strings.HasPrefix(shown.Get("RateLimit"), `"clients";r=`) ||
					(shown.Get("Retry-After") != "") != (want != http.StatusOK) {
					t.Errorf("request %d: %d %v, want %d", i, status, shown, want)
				}
			}
			status, _ := a.ask(t, addr, "GET", "/client", "198.51.100.4", nil)
			if status != http.StatusOK {
				t.Errorf("another client: %d", status)
			}
			_, shown := a.ask(t, addr, "GET", "/tenant", "198.51.100.5",
				http.Header{"X-Tenant": {"acme"}})
			if !strings.HasPrefix(shown.Get("RateLimit"), `"tenants";r=49`) {
				t.Errorf("a tenant: %v", shown)
			}
			for range 50 {
				a.ask(t, addr, "GET", "/chat", "198.51.100.6", nil)
			}
			for _, target := range spellings {
				if !strings.HasPrefix(target, "/") {
					continue // Envoy sends the path of it
				}
				status, _ := a.ask(t, addr, "OPTIONS", target, "198.51.100.6", nil)
				if status != http.StatusTooManyRequests && status != http.StatusBadRequest {
					t.Errorf("%q: %d, want 429", target, status)
				}
			}
			const none = `ratelimit_forward_auth_missing_total{ratelimit_entry="path"} 0`
			if _, metrics := d.Get(t, "/metrics"); !strings.Contains(metrics, none) {
				t.Errorf("requests lack a path: %s", metrics)
			}
		})
	}
}
