module github.com/truewindow/ratelimit

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.0.0
	github.com/dunglas/httpsfv v1.1.2
	github.com/redis/go-redis/v9 v9.22.0
	github.com/redis/rueidis v1.0.77
	github.com/valkey-io/valkey-go v1.0.77
	pgregory.net/rapid v1.2.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
