// Package headers writes and reads the HTTP fields that describe a client's limits.
//
// The default format is that of the Internet-Draft draft-ietf-httpapi-ratelimit-headers-11, which
// is work in progress. It has two fields, which are lists of Structured Fields (RFC 9651):
// RateLimit-Policy has the limits, and RateLimit has what is left of them.
//
//	RateLimit-Policy: "burst";q=10;w=1, "day";q=5000;w=86400
//	RateLimit: "burst";r=9;t=1, "day";r=100;t=36000
//
// Here q is the limit in units, w its window in seconds, and r the units that remain. A client that
// uses no more than r units within the next t seconds is not refused.
//
// Older formats are in wide use; [Format] lists them. [Write] writes the fields of one format.
//
// Clients can read the fields of an answer with [Parse] and [RetryAfter], in these formats and in
// those of several vendors.
package headers
