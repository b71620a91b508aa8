// Package caddylimit is a module for the web server Caddy: the HTTP handler http.handlers.limits,
// with the directive limits in Caddyfiles. docs/caddy.md describes it.
//
//	xcaddy build --with github.com/truewindow/ratelimit/caddylimit
//
// It answers as package [github.com/truewindow/ratelimit/httplimit] does. It has the stores of
// memory, of Redis through go-redis, and of Valkey through valkey-go; import the packages of other
// stores besides.
package caddylimit
