package service

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// The keys of personal begin with account, or are addresses of this network.
const (
	account = "anna.qvist"
	network = "198.51.100."
)

const personalLimits = `
limits:
  - {name: units, key: [account], max: 3/1h}
  - {name: budget, key: [tenant], max: 4/1h, holds: 1m}
  - {name: clients, key: [client], max: 3/1h}
  - {name: pairs, key: [tenant, account], max: 9/1h}
  - {name: hot, key: [hot], max: 300/1h, lease: 10%}
  - {name: blocked, key: [blocked], max: 1h, algorithm: block}
`

// personal is a service whose keys are accounts and addresses of clients.
type personal struct {
	*testing.T
	*daemon.Daemon
	conn    *grpc.ClientConn
	answers []string
}

func startPersonal(t *testing.T, bin, store string, flags ...string) *personal {
	t.Helper()
	path, _ := byRename(t, personalLimits)
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	d := daemon.Start(t, bin, append(flags, "--config="+path, "--store="+store,
		"--on-failure=local", "--instances=1", "--grpc-addr="+addr, "--log-level=debug",
		"--log-decisions=1", "--top-keys=100", "--trusted-proxy=127.0.0.1/32")...)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &personal{T: t, Daemon: d, conn: conn}
}

// post sends a body, in which $K is a key, and returns the answer.
func (p *personal) post(path, body, key string) string {
	p.Helper()
	status, answer, _ := p.PostJSON(p.T, path, strings.ReplaceAll(body, "$K", key))
	p.note(status)
	return answer
}

func (p *personal) note(answer any) { p.answers = append(p.answers, fmt.Sprint(answer)) }

// check asks as a proxy does.
func (p *personal) check(client string) {
	r, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.URL()+"/v1/check", nil)
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", client)
	r.Header.Set("X-Forwarded-Method", "GET")
	r.Header.Set("X-Forwarded-Uri", "/")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	p.note(res.StatusCode)
	_ = res.Body.Close()
}

func descriptorOf(entry, value string) []*ratelimitv3.RateLimitDescriptor {
	return []*ratelimitv3.RateLimitDescriptor{{
		Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: entry, Value: value}}}}
}

// traffic makes all kinds of calls: of each key more than its limit admits, and some that are
// wrong.
func (p *personal) traffic() {
	key := func(kind string) string { return account + "-" + kind }
	for range 4 {
		p.post("/v1/decide", `{"descriptor":{"account":"$K","tenant":"$K"}}`, key("descriptor"))
		p.post("/v1/decide", `{"claims":[{"limit":"units","key":"$K"}]}`, key("claim"))
		p.post("/v1/peek", `{"claims":[{"limit":"units","key":"$K"}]}`, key("claim"))
		p.post("/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"account",
			"value":"$K"}]}]}`, key("json"))
		for range 20 {
			p.post("/v1/decide", `{"descriptor":{"hot":"$K"}}`, key("hot"))
		}
		p.check(network + "7")
		res, err := rls.NewRateLimitServiceClient(p.conn).ShouldRateLimit(p.Context(),
			&rls.RateLimitRequest{Domain: "shop",
				Descriptors: descriptorOf("account", key("grpc"))})
		if err != nil {
			p.Fatal(err)
		}
		p.note(res.GetOverallCode())
	}
	p.holds(key("holds"))
	p.post("/v1/block", `{"limit":"blocked","key":"$K","for_ms":60000}`, key("blocked"))
	p.post("/v1/decide", `{"descriptor":{"blocked":"$K"}}`, key("blocked"))
	p.post("/v1/reset", `{"limit":"units","key":"$K"}`, key("reset"))
	p.post("/v1/decide", `{"claims":[{"limit":"$K","key":"$K"}]}`, key("wrong"))
	p.post("/v1/decide", `{"claims":[{"limit":"units","key":"$K","n":5}]}`, key("wrong"))
	p.post("/v1/decide", `{"descriptor":{"account":"$K"`, key("wrong"))
	p.post("/v1/settle", `{"id":"$K"}`, key("wrong"))
	p.post("/$K", `{}`, key("wrong"))
	_, err := rls.NewRateLimitServiceClient(p.conn).ShouldRateLimit(p.Context(),
		&rls.RateLimitRequest{Descriptors: descriptorOf("account", key("wrong"))})
	p.note(err)
	res, err := http.Post(p.URL()+"/v1/reset", "application/json", strings.NewReader(
		fmt.Sprintf(`{"limit":"units","key":%q}`, key("wrong"))))
	if err != nil {
		p.Fatal(err)
	}
	p.note(res.StatusCode)
	_ = res.Body.Close()
}

// holds holds units, by both protocols, and settles them or leaves them.
func (p *personal) holds(key string) {
	for range 3 {
		var held struct{ ID string }
		body := p.post("/v1/decide", `{"descriptor":{"tenant":"$K"},"n":2,"hold_ms":60000}`, key)
		if err := json.Unmarshal([]byte(body), &held); err != nil {
			p.Fatal(err)
		}
		p.post("/v1/renew", `{"id":"$K","hold_ms":60000}`, held.ID)
		p.post("/v1/settle", `{"id":"$K","used":1}`, held.ID)
		p.post("/v1/settle", `{"id":"$K"}`, held.ID)
	}
	client := kuadrant.NewRateLimitServiceClient(p.conn)
	for range 2 {
		res, err := client.Reserve(p.Context(), &kuadrant.ReserveRequest{Domain: "shop", Amount: 3,
			Descriptors: descriptorOf("tenant", key+"-kuadrant")})
		if err != nil {
			p.Fatal(err)
		}
		p.note(res.GetCode())
	}
}

// traces returns all that a service and its server show without a key: what is stored, what was
// sent to the server, the log, the metrics, the list of refused keys and the page.
func (p *personal) traces(server *servers.Server, prefix string) map[string]string {
	p.Helper()
	traces := map[string]string{"log": p.Logged()}
	for _, path := range []string{"/metrics", "/v1/top-keys", "/dashboard/"} {
		status, text := p.Get(p.T, path)
		if status != http.StatusOK {
			p.Errorf("%s: %d", path, status)
		}
		traces[path] = text
	}
	client := servers.Connect(p.T, server.Addr)
	traces["store"] = dump(p.T, client, prefix)
	slow, err := client.SlowLogGet(p.Context(), -1).Result()
	if err != nil {
		p.Fatal(err)
	}
	for _, command := range slow {
		if text := strings.Join(command.Args, " "); strings.Contains(text, prefix) {
			traces["commands"] += text + "\n"
		}
	}
	return traces
}

// dump returns all keys of a server with a prefix, and their values.
func dump(t *testing.T, client *redis.Client, prefix string) string {
	t.Helper()
	var b strings.Builder
	for keys := client.Scan(t.Context(), 0, prefix+"*", 1000).Iterator(); keys.Next(t.Context()); {
		key := keys.Val()
		kind, err := client.Type(t.Context(), key).Result()
		var value any
		switch {
		case err != nil:
		case kind == "string":
			value, err = client.Get(t.Context(), key).Result()
		case kind == "hash":
			value, err = client.HGetAll(t.Context(), key).Result()
		default:
			err = fmt.Errorf("its type is %s", kind)
		}
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		fmt.Fprintf(&b, "%q %q\n", key, value)
	}
	return b.String()
}

// found returns the forms in which a text has a part of a key: as it is, in hexadecimal, and in
// base64 from any of three bytes on.
func found(text string) (forms []string) {
	for _, part := range []string{account, network} {
		wanted := map[string]string{"plain": part, "hex": hex.EncodeToString([]byte(part))}
		for i := range 3 {
			// the characters that have bits of this part only
			in := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", i) + part))
			wanted[fmt.Sprint("base64 ", i)] = in[(8*i+5)/6 : (8*(i+len(part)))/6]
		}
		for form, want := range wanted {
			if strings.Contains(text, want) ||
				form == "hex" && strings.Contains(strings.ToLower(text), want) {
				forms = append(forms, form)
			}
		}
	}
	return forms
}

// TestFound: keys are found in each form.
func TestFound(t *testing.T) {
	for i := range 3 {
		text := []byte(strings.Repeat("x", i) + network + "7 and more")
		for _, form := range []string{string(text), hex.EncodeToString(text),
			strings.ToUpper(hex.EncodeToString(text)), base64.StdEncoding.EncodeToString(text),
			base64.RawURLEncoding.EncodeToString(text)} {
			if len(found(form)) == 0 {
				t.Errorf("no key is found in %q", form)
			}
		}
	}
}

// TestHashedKeysLeaveNoTrace runs the same traffic with keys that are hashed and with keys that are
// not: all answers are the same. With hashed keys no key is in the server, in what was sent to it,
// in logs, metrics, the list of refused keys and the page, also in an outage; without, the server
// has keys of each kind.
func TestHashedKeysLeaveNoTrace(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.EachImage(t, func(t *testing.T, image string) {
		t.Parallel()
		server := servers.Start(t, image, "--slowlog-log-slower-than", "0",
			"--slowlog-max-len", "1000000")
		secret := filepath.Join(t.TempDir(), "secret")
		write(t, secret, "the secret of keys of these tests\n")
		store := "redis://" + server.Addr + "?timeout=10s&prefix="
		plain := startPersonal(t, bin, store+"plain:")
		hashed := startPersonal(t, bin, store+"hashed:", "--key-secret-file="+secret)
		plain.traffic()
		hashed.traffic()
		if !slices.Equal(plain.answers, hashed.answers) {
			t.Errorf("answers\n%q with hashed keys,\n%q without", hashed.answers, plain.answers)
		}
		unhashed := plain.traces(server, "plain:")
		for where, text := range unhashed {
			forms := found(text)
			if inServer := where == "store" || where == "commands"; inServer != (len(forms) > 0) {
				t.Errorf("keys that are not hashed are in %s %q", where, forms)
			}
		}
		traces := hashed.traces(server, "hashed:")
		for _, where := range []string{"store", "commands"} {
			n := strings.Count(traces[where], "hashed:")
			if want := strings.Count(unhashed[where], "plain:"); n < want/2 {
				t.Errorf("%s has %d hashed keys, and %d that are not hashed", where, n, want)
			}
		}
		server.Kill(t)
		for range 30 { // until the breaker opens, and beyond
			hashed.post("/v1/decide", `{"descriptor":{"account":"$K"}}`, account+"-outage")
		}
		traces["log in an outage"] = hashed.Logged()
		if !strings.Contains(traces["log in an outage"], "deciding locally") {
			t.Error("there was no outage")
		}
		for where, text := range traces {
			if forms := found(text); forms != nil {
				t.Errorf("%s has a key, %q:\n%s", where, forms, text)
			}
		}
	})
}

// TestKeySecretChanges: a service with the same secret has the counts of one before, and a command
// with it finds a key to reset. With another secret all counts begin at zero, and the log warns
// of that once.
func TestKeySecretChanges(t *testing.T) {
	t.Parallel()
	bin := daemon.Build(t)
	servers.OneImage(t, servers.Newest(), func(t *testing.T, image string) {
		server := servers.Start(t, image)
		path, _ := byRename(t, "key_secret_file: secret\n"+personalLimits)
		store := storeOf(server)
		for i, tt := range []struct {
			secret       string
			first, later int
			warned       bool
		}{
			{"the first secret of these tests..", http.StatusOK, http.StatusTooManyRequests, false},
			{"the first secret of these tests..", http.StatusTooManyRequests,
				http.StatusTooManyRequests, false},
			{"another secret, of the same tests", http.StatusOK, http.StatusTooManyRequests, true},
			{"another secret, of the same tests", http.StatusTooManyRequests,
				http.StatusTooManyRequests, false},
		} {
			write(t, filepath.Join(filepath.Dir(path), "secret"), tt.secret)
			d := daemon.Start(t, bin, append(store, "--config="+path)...)
			for n, want := range []int{tt.first, tt.first, tt.first, tt.later} {
				const body = `{"descriptor":{"account":"anna"}}`
				if status, answer, _ := d.PostJSON(t, "/v1/decide", body); status != want {
					t.Errorf("start %d, request %d: %d %s, want %d", i, n, status, answer, want)
				}
			}
			if got := strings.Contains(d.Logged(), "secret of keys is new"); got != tt.warned {
				t.Errorf("start %d: warned %t, want %t", i, got, tt.warned)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
		defer cancel()
		reset := exec.CommandContext(ctx, bin, "reset", store[0], "--config="+path,
			"--of-limit=units", "anna")
		reset.Env = []string{} // without the settings of these tests
		if out, err := reset.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		client := servers.Connect(t, server.Addr)
		if left := dump(t, client, "rl:*:units:"); strings.Count(left, "rl:") != 1 {
			t.Errorf("after the reset the server has\n%s, want the state of the first secret", left)
		}
	})
}
