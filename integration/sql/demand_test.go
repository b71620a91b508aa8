package sql

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

var hourly = algorithm.SlidingLog(driver.PerHour("calls", 1000))

// of returns a take of n units of key.
func of(key string, n int64) driver.Demand {
	return driver.Demand{Key: key, N: n, Algorithm: hourly}
}

// lockOf returns the number of the lock of a demand.
func lockOf(d driver.Demand) uint64 {
	sum := sha256.Sum256([]byte(d.StoredKey()))
	return binary.BigEndian.Uint64(sum[:]) >> 1
}
