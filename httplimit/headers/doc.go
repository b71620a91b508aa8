// Package headers writes and reads the HTTP fields that tell a client about its limits.
//
// The default form is that of the Internet-Draft draft-ietf-httpapi-ratelimit-headers-11, which is
// work in progress: two lists of Structured Fields (RFC 9651), RateLimit-Policy with what the
// limits are and RateLimit with what is left of them.
//
//	RateLimit-Policy: "burst";q=10;w=1, "day";q=5000;w=86400
//	RateLimit: "burst";r=9;t=1, "day";r=100;t=36000
//
// A client that uses no more than r units within the next t seconds is not refused. Other forms are
// older and in wide use; [Format] lists them. An answer has the fields of one form only.
//
// For clients, [Parse] and [RetryAfter] read what servers send: these forms and those of vendors.
package headers
