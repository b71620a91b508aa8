package ratelimit

import "github.com/truewindow/ratelimit/driver"

// Names of package driver that users of limiters need.
type (
	// A Limit is at most Max units in any Window.
	Limit = driver.Limit
	// A Result is a decision.
	Result = driver.Result
	// Source says where a decision was made.
	Source = driver.Source
	// A Store keeps states and makes decisions atomic.
	Store = driver.Store
	// An Algorithm decides.
	Algorithm = driver.Algorithm
)

// The sources of a [Result].
const (
	SourceStore = driver.SourceStore // the store's state
	SourceCache = driver.SourceCache // an earlier refusal of the store that still holds
	SourceLocal = driver.SourceLocal // the memory of this process, while the store is unavailable
	SourceOpen  = driver.SourceOpen  // the policy [FailOpen], while the store is unavailable
)

// PerSecond returns a limit of at most the given units in any second.
func PerSecond(name string, units int64) Limit { return driver.PerSecond(name, units) }

// PerMinute returns a limit of at most the given units in any minute.
func PerMinute(name string, units int64) Limit { return driver.PerMinute(name, units) }

// PerHour returns a limit of at most the given units in any hour.
func PerHour(name string, units int64) Limit { return driver.PerHour(name, units) }

// PerDay returns a limit of at most the given units in any 24 hours.
func PerDay(name string, units int64) Limit { return driver.PerDay(name, units) }

// ParseLimit reads a limit such as "login=60/1m" or "100/s"; see [driver.ParseLimit].
func ParseLimit(s string) (Limit, error) { return driver.ParseLimit(s) }

// Errors that users of limiters handle; see the variables of package driver.
var (
	ErrInvalid        = driver.ErrInvalid        // an argument is wrong
	ErrExceedsLimit   = driver.ErrExceedsLimit   // more units than the limit ever admits
	ErrUnavailable    = driver.ErrUnavailable    // undecided
	ErrOutcomeUnknown = driver.ErrOutcomeUnknown // undecided, but perhaps recorded
)
