package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
)

// TestEnvoyTimeout: calls over gRPC to a store on a server have a timeout within Envoy's, unless
// the URL of the store has one. The store itself keeps its own.
func TestEnvoyTimeout(t *testing.T) {
	for store, want := range map[string]time.Duration{
		"memory":                             0,
		"redis://localhost":                  envoy.StoreTimeout,
		"redis://localhost?prefix=a:":        envoy.StoreTimeout,
		"redis://localhost?timeout=1s":       0,
		"redis+cluster://a,b?x=1&timeout=1s": 0,
	} {
		c := Serve{Store: store, GRPCAddr: "127.0.0.1:0", EnvoyLook: "free"}
		if err := c.prepareGRPC(); err != nil || c.Store != store || c.grpcTimeout != want {
			t.Errorf("%s: %s %v %v, want %v", store, c.Store, c.grpcTimeout, err, want)
		}
	}
	for _, f := range []chargeFlag{{"", envoy.ChargeEach}, {"d", envoy.ChargeAll}} {
		c := Serve{EnvoyCharge: []chargeFlag{f}, EnvoyLook: "free"}
		err := c.prepareGRPC()
		if err == nil || !strings.Contains(err.Error(), "need --grpc-addr") {
			t.Errorf("--envoy-charge=%v without --grpc-addr: %v", f, err)
		}
	}
}

// TestGRPCMaxConnectionAgeFlag: an age is not negative, and needs an address.
func TestGRPCMaxConnectionAgeFlag(t *testing.T) {
	for age, grpcAddr := range map[time.Duration]string{time.Second: "", -time.Second: ":0"} {
		c := Serve{GRPCAddr: grpcAddr, GRPCMaxConnectionAge: age, EnvoyLook: "free"}
		if err := c.prepareGRPC(); err == nil || !strings.Contains(err.Error(), "connection-age") {
			t.Errorf("%v with --grpc-addr=%s: %v", age, grpcAddr, err)
		}
	}
}

// TestEnvoyCharge: --envoy-charge is for all domains, or for one.
func TestEnvoyCharge(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "all []",
		"each":                    "each []",
		"llm=always":              "all [llm=always]",
		"always,web=all,a=b=each": "always [a=b=each web=all]",
		"all,each":                "error", "d=all,d=each": "error", "=all": "error", "d=": "error",
		"sometimes": "error",
	} {
		var flags []chargeFlag
		var err error
		for value := range strings.SplitSeq(text, ",") {
			var f chargeFlag
			if value != "" {
				err = errors.Join(err, f.UnmarshalText([]byte(value)))
				flags = append(flags, f)
			}
		}
		other, of, twice := charges(flags)
		var all []string
		for domain, how := range of {
			all = append(all, domain+"="+string(how))
		}
		slices.Sort(all)
		got := fmt.Sprint(other, " ", all)
		if err != nil || twice != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestFlagsOverrideVariables: a flag overrides a variable of envoyproxy/ratelimit, also if it has
// the value that is its default without one.
func TestFlagsOverrideVariables(t *testing.T) {
	t.Setenv("RUNTIME_ROOT", t.TempDir())
	t.Setenv("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
	t.Setenv("LOG_LEVEL", "debug")
	t.Setenv("LOG_FORMAT", "json")
	t.Setenv("HOST", "192.0.2.1")
	for _, tt := range []struct{ flags, want string }{
		{"", "192.0.2.1:8080 debug json"},
		{"--addr=127.0.0.1:8080 --log-level=info --log-format=text",
			"127.0.0.1:8080 info text"},
	} {
		c := parseServe(t, strings.Fields("serve --store=memory "+tt.flags))
		got := fmt.Sprint(c.Addr, " ", strings.ToLower(c.LogLevel.String()), " ", c.LogFormat)
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.flags, got, tt.want)
		}
	}
}
