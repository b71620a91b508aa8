package caddylimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/truewindow/ratelimit"
)

var update = flag.Bool("update", false, "write testdata/all.json")

// TestGolden: a Caddyfile with all options has this JSON, which is valid.
func TestGolden(t *testing.T) {
	t.Setenv("CADDYLIMIT_PASSWORD", secret)
	file, err := os.ReadFile("testdata/all.Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	config := adapt(t, string(file))
	var got bytes.Buffer
	if err := json.Indent(&got, config, "", "\t"); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("testdata/all.json", got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/all.json")
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%s", &got)
	}
	validate(t, config)
}

func validate(t testing.TB, config []byte) {
	t.Helper()
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Error(err)
	}
}

// TestWrongCaddyfiles: an error says what is wrong, and in which line.
func TestWrongCaddyfiles(t *testing.T) {
	for _, tt := range []struct{ options, want string }{
		{"", "limits: limit: write at least one, such as limit api 100/1m"},
		{"store \"\"\nlimit a 10/1m", "store is empty"},
		{"limit a 10/1m {\nunits \"\"\n}", "units is empty"},
		{"rate 10/1s", "rate of limits is not one of store, limit, on_failure and handle_errors"},
		{"limit a", "write limit <name> <max>, such as limit api 100/1m"},
		{"limit a 10/1m log", "write limit <name> <max>, such as limit api 100/1m"},
		{"limit a ten/1m", `limits: limit a: max: ratelimit: invalid limit: "ten/1m": MAX ` +
			"is not an integer"},
		{"limit a b=10/1m", `limits: limit a: max: "b=10/1m" has a name`},
		{"limit a 0/1m", "limits: limit a: max: ratelimit: invalid limit: Max 0 is not between 1 "},
		{"limit \"a b\" 10/1m", "limits: limit a b: name: "},
		{"limit a 10", `limits: limit a: max: ratelimit: invalid limit: "10" is not of the form ` +
			"MAX/WINDOW, such as 10/1m"},
		{"limit ä 10/1m", "limits: limit ä: name: "},
		{"limit a 10/1m\nlimit a 10/1m", "limits: limit a: name: two limits of one handler " +
			"have it"},
		{"limit a 10/1m {\nalgorithm sliding\n}", `limits: limit a: algorithm: "sliding" is not ` +
			"one of log, bucket, fixed, counter, week, month, quarter and in-flight"},
		{"limit a 10/1m {\nalgorithm month\n}", `limits: limit a: max: "10/1m" is not a number ` +
			"of units, which month needs, without a window"},
		{"limit a 0 {\nalgorithm in-flight\n}", "limits: limit a: max: "},
		{"limit a 10/1m {\nburst 3\n}", "burst of limit a is not one of algorithm, key and units"},
		{"limit a 10/1m {\nkey\n}", "wrong argument count"},
		{"limit a 10/1m {\nkey \"\"\n}", "limits: limit a: key: a part is empty"},
		{"limit a 10/1m {\nkey x{client_ip}\n}", "limits: limit a: key: write the address " +
			"{http.vars.client_ip} as a part of its own"},
		{"limit a 10/1m {\nkey a\nkey b\n}", "key of limit a is there twice"},
		{"limit a 10/1m {\nunits -1\n}", `limits: limit a: units: "-1" is not a whole number`},
		{"limit a 10/1m {\nunits 11\n}", "limits: limit a: units: a request costs 11, and the " +
			"limit admits 10"},
		{"limit a 10/1m\non_failure maybe", `limits: on_failure: "maybe" is neither open nor ` +
			"closed"},
		{"limit a 10/1m\nstore memory\nstore memory", "store is there twice"},
		{"limit a 10/1m\nhandle_errors 429", "wrong argument count"},
	} {
		_, err := tryAdapt("http://:1 {\nlimits {\n" + tt.options + "\n}\n}\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "at Caddyfile:") {
			t.Errorf("%s: got %v, want %s", tt.options, err, tt.want)
		}
	}
}

// TestWrongConfigs: what only JSON or a store can have wrong is an error when the configuration is
// loaded. It has no password.
func TestWrongConfigs(t *testing.T) {
	t.Setenv("CADDYLIMIT_PASSWORD", secret+"@"+secret)
	limits := []Limit{{Name: "a", Max: "1/1h"}}
	for _, tt := range []struct {
		handler Handler
		want    string
	}{
		{Handler{}, "limits: limit: write at least one"},
		{Handler{Limits: limits, Store: "redis://:{" + secret + "}@host"},
			"limits: store: a placeholder is empty or unknown"},
		{Handler{Limits: limits, Store: secret}, "limits: store: it is not memory or a URL"},
		{Handler{Limits: []Limit{{Max: "1/1h"}}}, "limits: name: a limit needs a name"},
		{Handler{Limits: []Limit{{Name: "a"}}}, "limits: limit a: max: "},
		{Handler{Limits: limits, OnFailure: "no"}, "limits: on_failure: "},
		{Handler{Limits: limits, Store: "postgres://user:" + secret + "@host/db"},
			"github.com/truewindow/ratelimit/backend/postgres"},
		{Handler{Limits: limits, Store: "redis://:" + secret + "%zz@host"}, "limits: store: "},
		{Handler{Limits: limits, Store: "redis://:{env.CADDYLIMIT_PASSWORD}@host"},
			"limits: store: "},
		{Handler{Limits: limits, Store: "redis://:" + secret + "@host?tiemout=1s"},
			"limits: store: "},
		{Handler{Limits: limits, Store: "redis://:{env.CADDYLIMIT_NONE}@host"},
			"limits: store: evaluated placeholder {env.CADDYLIMIT_NONE} is empty"},
		{Handler{Limits: limits, Store: "memory:?max-keys=none"}, "limits: store: "},
	} {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		err := tt.handler.Provision(ctx)
		wrong := new(ConfigError)
		if !errors.As(err, &wrong) || !errors.Is(err, ratelimit.ErrInvalid) ||
			!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: got %v, want %s", tt.handler, err, tt.want)
		}
		if err := tt.handler.Cleanup(); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if n := openStores(); n != 0 {
		t.Errorf("%d stores are open, want none", n)
	}
}
