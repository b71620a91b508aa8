package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A limitadorLimit is a limit of limitador's file.
type limitadorLimit struct {
	Name, Namespace       string
	Max                   int64 `yaml:"max_value"`
	Seconds               int64
	Conditions, Variables []string
}

var (
	celEqual  = regexp.MustCompile(`^descriptors\[0\]\['(.+)'\] (==|!=) '(.+)'$`)
	celPrefix = regexp.MustCompile(`^descriptors\[0\]\['(.+)'\]\.startsWith\('(.+)'\)$`)
	celEntry  = regexp.MustCompile(`^descriptors\[0\]\['(.+)'\]$`)
)

// translate returns the limit in the form of this module.
func (l *limitadorLimit) translate(t *testing.T) *rules.Limit {
	t.Helper()
	limit := &rules.Limit{
		Name: l.Name, When: []rules.Condition{{Entry: "domain", Pattern: l.Namespace}},
		Rate: rules.Rate{Units: l.Max, Window: time.Duration(l.Seconds) * time.Second},
	}
	for _, text := range l.Conditions {
		if m := celPrefix.FindStringSubmatch(text); m != nil {
			limit.When = append(limit.When,
				rules.Condition{Entry: m[1], Pattern: m[2], Prefix: true})
		} else if m := celEqual.FindStringSubmatch(text); m == nil {
			t.Fatalf("%s has no equivalent", text)
		} else if c := (rules.Condition{Entry: m[1], Pattern: m[3]}); m[2] == "==" {
			limit.When = append(limit.When, c)
		} else {
			limit.Except = append(limit.Except, rules.Exception{
				When: []rules.Condition{c}, Rate: rules.Rate{Unlimited: true}})
		}
	}
	for _, text := range l.Variables {
		limit.Key = append(limit.Key, celEntry.FindStringSubmatch(text)[1])
	}
	return limit
}

// limitadorDocs returns the command of docs/limitador.md, limitador's limits and the same limits in
// a file of this module.
func limitadorDocs(t *testing.T) (command string, theirs []limitadorLimit, file string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/limitador.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := apitest.YAMLBlock.FindAllSubmatch(page, -1)
	commands := regexp.MustCompile("(?ms)^```sh\n(.*?)\n```$").FindAllSubmatch(page, -1)
	if len(blocks) != 2 || len(commands) != 1 {
		t.Fatalf("%d and %d blocks", len(blocks), len(commands))
	}
	if err := yaml.Unmarshal(blocks[0][1], &theirs); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "limits.yaml")
	apitest.WriteFile(t, file, string(blocks[1][1]))
	return string(commands[0][1]), theirs, file
}

// TestLimitadorDocs: the limits of both files are the same, and the command reads ours.
func TestLimitadorDocs(t *testing.T) {
	command, theirs, file := limitadorDocs(t)
	if !strings.Contains(command, " --config limits.yaml") {
		t.Errorf("%q does not name the file", command)
	}
	loaded, err := config.Source{Path: file}.Load()
	if err != nil {
		t.Fatal(err)
	}
	limits := loaded.Limits()
	if len(limits) != len(theirs) {
		t.Fatalf("%d and %d limits", len(limits), len(theirs))
	}
	for i, l := range limits {
		theirs := theirs[i].translate(t)
		got := fmt.Sprint(l.Name, l.When, l.Key, l.Rate, exceptions(l))
		if want := fmt.Sprint(theirs.Name, theirs.When, theirs.Key, theirs.Rate,
			exceptions(theirs)); got != want {
			t.Errorf("limit %d is %s\nwant %s", i, got, want)
		}
	}
}

// exceptions returns those of a limit, without their positions.
func exceptions(l *rules.Limit) (texts []string) {
	for _, e := range l.Except {
		texts = append(texts, fmt.Sprint(e.When, e.Rate))
	}
	return texts
}

// TestLimitadorDocsCalls: each limit of the page applies to its requests, and what differs is so.
func TestLimitadorDocsCalls(t *testing.T) {
	_, _, file := limitadorDocs(t)
	_, log, _ := start(t, "--config="+file, "--grpc-addr=127.0.0.1:0")
	client := kuadrant.NewRateLimitServiceClient(dialEnvoy(t, log))
	const over = rls.RateLimitResponse_OVER_LIMIT
	descriptors := func(pairs ...string) []*ratelimitv3.RateLimitDescriptor {
		d := new(ratelimitv3.RateLimitDescriptor)
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries,
				&ratelimitv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		return []*ratelimitv3.RateLimitDescriptor{d}
	}
	for i, tt := range []struct {
		n    uint32
		over bool
		of   []*ratelimitv3.RateLimitDescriptor
	}{
		{1001, true, descriptors("req.method", "GET")},
		{1000, false, descriptors("req.method", "GET")},
		{6, true, descriptors("req.method", "POST", "req.path", "/", "user_id", "a")},
		{6, false, descriptors("req.method", "POST", "req.path", "/json", "user_id", "a")},
		{6, false, descriptors("req.method", "POST", "req.path", "/")},
		{51, true, descriptors("req.path", "/api/a")},
	} {
		got, err := client.CheckRateLimit(t.Context(), &rls.RateLimitRequest{
			Domain: "shop", Descriptors: tt.of, HitsAddend: tt.n})
		if err != nil || (got.GetOverallCode() == over) != tt.over {
			t.Errorf("%d: %v %v", i, got, err)
		}
	}
	user := descriptors("user_id", "a")
	reserve := func(n uint64) *kuadrant.ReserveResponse {
		got, err := client.Reserve(t.Context(), &kuadrant.ReserveRequest{
			Domain: "llm", Descriptors: user, Amount: n})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	held := reserve(150_000)
	if held.GetReservationId() == "" || reserve(1).GetCode() != over {
		t.Errorf("an amount above the limit does not hold it: %v", held)
	}
	for _, released := range []bool{true, false} {
		got, err := client.Commit(t.Context(), &kuadrant.CommitRequest{
			ReservationId: held.GetReservationId(), ActualAmount: 60_000})
		if err != nil || got.GetReservationReleased() != released {
			t.Errorf("%v %v, want released %t", got, err, released)
		}
	}
	reserve(40_000)
	if reserve(0).GetCode() != over {
		t.Error("more than 60000 and 40000 fit")
	}
}
