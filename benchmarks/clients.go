package main

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"
)

const (
	connections   = 64
	clientTimeout = 10 * time.Second // long, so that a stall shows as latency and not as an error
)

func newGoRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: connections, PoolTimeout: clientTimeout, ReadTimeout: clientTimeout,
		WriteTimeout: clientTimeout,
	})
}

func newRueidis(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		ConnWriteTimeout: clientTimeout,
	})
}

func newValkey(addr string) (valkey.Client, error) {
	return valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
		ConnWriteTimeout: clientTimeout,
	})
}
