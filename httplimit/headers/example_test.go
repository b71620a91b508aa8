package headers_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit/httplimit/headers"
)

// An answer of an API describes two limits. Nothing remains of one of them.
func ExampleParse() {
	answer := http.Header{}
	answer.Set("X-RateLimit-Limit-Requests", "500")
	answer.Set("X-RateLimit-Remaining-Requests", "499")
	answer.Set("X-RateLimit-Reset-Requests", "120ms")
	answer.Set("X-RateLimit-Limit-Tokens", "30000")
	answer.Set("X-RateLimit-Remaining-Tokens", "0")
	answer.Set("X-RateLimit-Reset-Tokens", "1m0s")

	for _, q := range headers.Parse(answer, time.Now()) {
		fmt.Printf("%d of %d %s remain for %v\n", q.Remaining, q.Limit, q.Name, q.Reset)
	}
	// Output:
	// 499 of 500 requests remain for 120ms
	// 0 of 30000 tokens remain for 1m0s
}
