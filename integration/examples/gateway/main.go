// Command gateway is a gateway to a language model. It keeps each tenant within the requests, the
// tokens and the calls in flight of its plan, together with all other gateways on the same store:
//
//	go -C integration run ./examples/gateway -store redis://127.0.0.1:6379
//
// Its model is a stand-in that repeats the prompt, and its plans are those of two tenants.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"strings"

	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/memory"
	_ "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/httplimit"
)

func main() {
	url := flag.String("store", "memory", "`URL` of the store")
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	store, err := backend.Open(context.Background(), *url)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*addr, &gateway{store: store, planOf: planOf, ask: repeat}))
}

// planOf stands for a query of your database.
func planOf(_ context.Context, tenant string) (plan, error) {
	switch tenant {
	case "acme":
		return plan{Requests: 60, Tokens: 100_000, Calls: 5}, nil
	case "trial":
		return plan{Requests: 3, Tokens: 2000, Calls: 1}, nil
	}
	return plan{}, &httplimit.StatusError{Status: http.StatusForbidden}
}

// repeat stands for a language model: each word of the prompt is a token of the answer.
func repeat(
	_ context.Context, prompt string, send func(part string, used int64) error,
) (used int64, err error) {
	used = tokens(prompt)
	for word := range strings.FieldsSeq(prompt) {
		used++
		if err := send(word, used); err != nil {
			return used, err
		}
	}
	return used, nil
}
