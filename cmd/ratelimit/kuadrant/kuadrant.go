// Package kuadrant has the messages and the methods of Kuadrant's rate limit protocol,
// kuadrant.service.ratelimit.v1. Package envoy serves it.
package kuadrant

// ENVOY_API is a folder with the files of Envoy's API and of what they import.
//go:generate protoc -I .. -I $ENVOY_API --go_out=paths=source_relative:.. --go-grpc_out=paths=source_relative:.. kuadrant/ratelimit.proto
