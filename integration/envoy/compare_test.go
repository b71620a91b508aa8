package envoy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

// TestSameAnswers: both services answer random requests under random files alike, apart from the
// differences that TestDifferences shows.
func TestSameAnswers(t *testing.T) {
	requests := depth.Of(800, 2500) // of a round
	for round := range depth.Of(1, 40) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			for !sameAnswers(t, requests) { // a fixed window has turned over
			}
		})
	}
}

// sameAnswers compares the answers to random requests. It is false if an hour has begun meanwhile.
func sameAnswers(t *testing.T, requests int) bool {
	seed := rand.Uint64()
	r := randomly{rand.New(rand.NewPCG(seed, 0))}
	domains, files := r.domains(t, 40)
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, files)
	theirs, ours := startTheirs(t), startOurs(t, alike...)
	c := &comparison{histories: make(map[string]*history)}
	began := time.Now()
	for range requests {
		req := r.request(domains)
		c.compare(req, theirs.ask(t, req), ours.ask(t, req))
	}
	if time.Now().UTC().Truncate(time.Hour).After(began) {
		return false
	}
	for _, problem := range c.problems[:min(len(c.problems), 5)] {
		t.Errorf("seed %d: %s", seed, problem)
	}
	t.Logf("%d requests: %+v", requests, c.counts)
	n := c.counts
	if n.Admitted == 0 || n.Refused == 0 || n.Shadow == 0 || n.Unlimited == 0 || n.None == 0 ||
		n.Apart > n.Compared/4 {
		t.Errorf("seed %d: not all answers were compared: %+v", seed, n)
	}
	return true
}

// A comparison compares answers to a sequence of requests.
type comparison struct {
	histories map[string]*history
	problems  []string
	counts    counts
}

// counts are numbers of statuses: those that were compared, by what they are, and those that are
// apart because of a difference.
type counts struct{ Compared, Admitted, Refused, Shadow, Unlimited, None, Apart int }

// A history is what envoyproxy/ratelimit has counted for a descriptor. It counts what it refuses.
type history struct{ counted uint64 }

func (c *comparison) compare(req *rls.RateLimitRequest, theirs, ours *rls.RateLimitResponse) {
	problem := func(text string) {
		c.problems = append(c.problems,
			fmt.Sprintf("%s\nrequest %v\ntheirs  %v\nours    %v", text, req, theirs, ours))
	}
	if len(theirs.GetStatuses()) != len(ours.GetStatuses()) {
		problem("number of statuses")
		return
	}
	alike, refused := true, ok
	for i := range theirs.GetStatuses() {
		t, o := theirs.GetStatuses()[i], ours.GetStatuses()[i]
		if text := c.status(req, i, t, o); text != "" {
			problem(text)
		}
		alike = alike && t.GetCode() == o.GetCode()
		refused = max(refused, o.GetCode())
	}
	if ours.GetOverallCode() != refused ||
		alike && theirs.GetOverallCode() != ours.GetOverallCode() {
		problem("overall code")
	}
}

// status compares the statuses of a descriptor. It returns what differs.
func (c *comparison) status(
	req *rls.RateLimitRequest, i int, theirs, ours *rls.RateLimitResponse_DescriptorStatus,
) string {
	limit := theirs.GetCurrentLimit()
	if !proto.Equal(limit, ours.GetCurrentLimit()) {
		return "current limit"
	}
	if limit == nil {
		c.counts.Compared++
		if theirs.GetLimitRemaining() > 0 {
			c.counts.Unlimited++
		} else {
			c.counts.None++
		}
		if theirs.GetCode() != ours.GetCode() ||
			theirs.GetLimitRemaining() != ours.GetLimitRemaining() {
			return "status without a limit"
		}
		return ""
	}
	h := c.history(req, i)
	hits, most := hitsOf(req, i), uint64(limit.GetRequestsPerUnit())
	h.counted += hits
	if hits == 0 && most == 0 {
		c.counts.Apart++
		return ""
	}
	c.counts.Compared++
	if theirs.GetCode() != ours.GetCode() {
		return "code"
	}
	switch {
	case h.counted <= most:
		c.counts.Admitted++
		if theirs.GetLimitRemaining() != ours.GetLimitRemaining() {
			return "remaining"
		}
	case theirs.GetCode() == over:
		c.counts.Refused++
	default:
		c.counts.Shadow++
	}
	return ""
}

func (c *comparison) history(req *rls.RateLimitRequest, i int) *history {
	var key strings.Builder
	fmt.Fprintf(&key, "%q", req.GetDomain())
	for _, e := range req.GetDescriptors()[i].GetEntries() {
		// This is how envoyproxy/ratelimit joins them.
		fmt.Fprintf(&key, "_%s_%s", e.GetKey(), e.GetValue())
	}
	h := c.histories[key.String()]
	if h == nil {
		h = new(history)
		c.histories[key.String()] = h
	}
	return h
}

func hitsOf(req *rls.RateLimitRequest, i int) uint64 {
	if own := req.GetDescriptors()[i].GetHitsAddend(); own != nil {
		return own.GetValue()
	}
	return max(1, uint64(req.GetHitsAddend()))
}
