package command

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

const (
	ratelimitService = "/envoy.service.ratelimit.v3.RateLimitService/"
	kuadrantService  = "/kuadrant.service.ratelimit.v1.RateLimitService/"
)

// TestAuditOfCalls: over gRPC, certificates and tokens have the rights of the file, and what
// charges whether it fits or not leaves an event; decisions leave one only if a right is missing.
func TestAuditOfCalls(t *testing.T) {
	a := apitest.NewAuthority(t)
	for _, name := range []string{"own", "billing", "jobs", "stranger"} {
		a.Issue(name)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	base, log, stop := start(t, "--grpc-addr=127.0.0.1:0", "--audit="+path,
		"--config="+apitest.WriteFile(t, filepath.Join(dir, "limits.yaml"),
			"limits:\n  - {name: tokens, key: [key], max: 100/1h, holds: 1m}\n"),
		"--access-file="+apitest.WriteFile(t, filepath.Join(dir, "access.yaml"),
			"anyone: []\n"+strings.TrimPrefix(auditAccess, "\n")),
		"--tls-cert="+a.Path("own.pem"), "--tls-key="+a.Path("own.key"),
		"--tls-client-ca="+a.Path("ca.pem"))
	addr := othersLogged.FindStringSubmatch(log.String())[1]
	var want []string
	for _, who := range []struct {
		certificate, token, says string
		decides, settles         codes.Code
		otherLimit               bool
	}{
		{"billing", "", "certificate:billing", codes.OK, codes.OK, false},
		{"stranger", annToken, "token:ann", codes.OK, codes.OK, false},
		{"jobs", "", "certificate:jobs", codes.PermissionDenied, codes.PermissionDenied, true},
		{"billing", decideToken, "token:decider", codes.OK, codes.PermissionDenied, false},
		{"stranger", "", "certificate:CN=stranger", codes.PermissionDenied,
			codes.PermissionDenied, false},
	} {
		config := a.Client(who.certificate).Transport.(*http.Transport).TLSClientConfig
		conn, err := grpc.NewClient(addr,
			grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c := caller{T: t, ctx: t.Context(), conn: conn, says: who.says, limit: " tokens"}
		if who.token != "" {
			c.ctx = metadata.AppendToOutgoingContext(
				c.ctx, "authorization", "Bearer "+who.token)
		}
		if !who.otherLimit {
			c.limit = ""
		}
		c.decide(who.decides)
		c.settle(who.settles)
		want = append(want, c.events...)
	}
	base = strings.Replace(base, "http:", "https:", 1)
	for certificate, status := range map[string]int{"billing": 200, "jobs": 403} {
		res, err := a.Client(certificate).Post(base+"/json", "application/json", strings.NewReader(
			`{"domain":"any","descriptors":[{"entries":[{"key":"key","value":"a"}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != status {
			t.Errorf("/json as %s: %d", certificate, res.StatusCode)
		}
	}
	want = append(want, "certificate:jobs refused decide api /json 403: tokens")
	stop()
	got := events(t, path)
	var texts []string
	for _, e := range got {
		texts = append(texts, shown(&e))
		if !strings.HasPrefix(e.From, "127.0.0.1:") {
			t.Errorf("%+v", e)
		}
	}
	if !slices.Equal(texts, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

// A caller calls over gRPC, and has the events that this leaves.
type caller struct {
	*testing.T
	ctx    context.Context
	conn   *grpc.ClientConn
	says   string
	limit  string // of an event that is refused
	events []string
}

func (c *caller) check(what string, err error, want codes.Code, action, path, changes string) {
	c.Helper()
	if status.Code(err) != want {
		c.Errorf("%s %s: %v, want %v", c.says, what, err, want)
	}
	if want != codes.OK {
		changes = c.limit
		c.events = append(c.events, fmt.Sprintf("%s refused %s grpc %s %d:%s", c.says, action, path,
			want, changes))
	} else if changes != "" {
		c.events = append(c.events, fmt.Sprintf("%s done %s grpc %s 0: tokens%s", c.says, action,
			path, changes))
	}
}

func (c *caller) decide(want codes.Code) {
	c.Helper()
	_, err := rls.NewRateLimitServiceClient(c.conn).ShouldRateLimit(c.ctx, keyCall(c.says, 1))
	c.check("ShouldRateLimit", err, want, "decide", ratelimitService+"ShouldRateLimit", "")
	_, err = kuadrant.NewRateLimitServiceClient(c.conn).CheckRateLimit(c.ctx, keyCall(c.says, 1))
	c.check("CheckRateLimit", err, want, "decide", kuadrantService+"CheckRateLimit", "")
}

func (c *caller) settle(want codes.Code) {
	c.Helper()
	calls := kuadrant.NewRateLimitServiceClient(c.conn)
	_, err := calls.Report(c.ctx, keyCall(c.says, 3))
	c.check("Report", err, want, "force", kuadrantService+"Report", " units=3")
	_, err = calls.Commit(c.ctx, &kuadrant.CommitRequest{Domain: "any", ActualAmount: 4,
		Descriptors: keyCall(c.says, 1).Descriptors})
	commit := "force"
	if want != codes.OK {
		commit = "settle" // the right of which is missing
	}
	c.check("Commit", err, want, commit, kuadrantService+"Commit", " units=4")
	if want != codes.OK {
		return
	}
	held, err := calls.Reserve(c.ctx, &kuadrant.ReserveRequest{Domain: "any", Amount: 5,
		Descriptors: keyCall(c.says, 1).Descriptors})
	c.check("Reserve", err, want, "", "", "")
	_, err = calls.Commit(c.ctx, &kuadrant.CommitRequest{Domain: "any", ActualAmount: 6,
		ReservationId: held.GetReservationId()})
	c.check("Commit of an id", err, want, "settle", kuadrantService+"Commit", " held=5 units=6")
}
