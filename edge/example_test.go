package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/edge"
)

// A middleware for a protocol of lines: the first word of each is the caller.
func Example() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 2)))
	if err != nil {
		log.Fatal(err)
	}

	handle := limited(limiter, func(_ context.Context, line string) (string, error) {
		return strings.ToUpper(line), nil
	})
	lines := bufio.NewScanner(strings.NewReader("ann hi\nann hello\nann hey\nbob hi\n"))
	for lines.Scan() {
		answer, err := handle(context.Background(), lines.Text())
		fmt.Println(answer, err)
	}
	// Output:
	// ANN HI <nil>
	// ANN HELLO <nil>
	//  rate limit exceeded: hour
	// BOB HI <nil>
}

type handler func(ctx context.Context, line string) (answer string, err error)

// limited takes a unit for each line that next handles.
func limited(limiter *ratelimit.Limiter, next handler) handler {
	return func(ctx context.Context, line string) (string, error) {
		user, _, _ := strings.Cut(line, " ")
		claims := []ratelimit.Claim{{Limiter: limiter, Key: user, N: 1}}

		var call edge.Call
		err := call.Decide(ctx, claims, edge.Options{})
		if err != nil || !call.Allowed() {
			refusal := call.Refusal(ctx, claims, err, nil)
			return "", errors.New(refusal.Status(0).Message)
		}
		keep := true // also if next panics
		defer func() { call.Settle(ctx, keep) }()
		answer, err := next(ctx, line)
		keep = err == nil
		return answer, err
	}
}
