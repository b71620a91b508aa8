package connectv1_test

import (
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/connectlimit/connectv1"
	"github.com/truewindow/ratelimit/httplimit"
)

// A limit for each address, in front of the handler of a service.
func ExampleWithErrors() {
	var limiter *ratelimit.Limiter // made once
	var handler http.Handler       // as NewGreeterHandler returns it

	mux := http.NewServeMux()
	limit := httplimit.New(httplimit.PerKey(limiter, clientip.RemoteAddr),
		connectv1.WithErrors(""))
	mux.Handle("/acme.v1.Greeter/", limit(handler))
}
