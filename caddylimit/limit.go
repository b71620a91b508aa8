package caddylimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/httplimit"
)

// A Limit is one limit of a [Handler].
type Limit struct {
	// Name is the name of the limit, as [ratelimit.Limit] has it. Within a store, requests with the
	// same name, algorithm and key share one history, whichever handler they pass.
	Name string `json:"name"`

	// Max is what the limit admits: units in a window, such as "100/1m" or "5000/d", as
	// [ratelimit.Limit] reads it. The algorithms week, month, quarter and in-flight have units
	// alone, such as "1000".
	Max string `json:"max"`

	// Algorithm is log (the default, exact in any window), bucket, fixed, counter, week, month,
	// quarter, or in-flight for requests at once.
	Algorithm string `json:"algorithm,omitempty"`

	// Key has the parts of the key, with placeholders, such as "{http.request.header.X-User}". A
	// request for which a placeholder is empty or unknown is answered with 400. The default is the
	// client's address as the server's trusted_proxies determine it, {http.vars.client_ip}. That,
	// and {http.request.remote.host}, are a part of their own, and IPv6 counts by its /64 network.
	Key []string `json:"key,omitempty"`

	// Units is what a request costs: a whole number, or placeholders that make one. With 0 the
	// limit does not apply. The default is 1.
	Units string `json:"units,omitempty"`
}

// counting has the algorithms of units in a window.
var counting = map[string]func(ratelimit.Limit) ratelimit.Algorithm{
	"":        as(algorithm.SlidingLog),
	"log":     as(algorithm.SlidingLog),
	"bucket":  as(algorithm.GCRA),
	"fixed":   as(algorithm.FixedWindow),
	"counter": as(algorithm.SlidingWindowCounter),
}

func as[A ratelimit.Algorithm](
	f func(ratelimit.Limit) A,
) func(ratelimit.Limit) ratelimit.Algorithm {
	return func(l ratelimit.Limit) ratelimit.Algorithm { return f(l) }
}

// windowless has the algorithms whose Max is units alone. They do not use the Window of the limit.
var windowless = map[string]func(ratelimit.Limit) ratelimit.Algorithm{
	"week": func(l ratelimit.Limit) ratelimit.Algorithm {
		return algorithm.Weekly(l.Name, l.Max, time.Monday)
	},
	"month": func(l ratelimit.Limit) ratelimit.Algorithm {
		return algorithm.Monthly(l.Name, l.Max)
	},
	"quarter": func(l ratelimit.Limit) ratelimit.Algorithm {
		return algorithm.Quarterly(l.Name, l.Max)
	},
	"in-flight": func(l ratelimit.Limit) ratelimit.Algorithm {
		return algorithm.InFlight(l.Name, l.Max)
	},
}

// A ConfigError is what is wrong in the configuration of a [Handler]. It wraps
// [ratelimit.ErrInvalid].
type ConfigError struct {
	Limit string // the name of the limit, or "" if the error is not of a limit
	Field string // such as max, as in a Caddyfile and in JSON
	Err   error
}

func (e *ConfigError) Error() string {
	at := e.Field
	if e.Limit != "" {
		at = "limit " + e.Limit + ": " + e.Field
	}
	return "limits: " + at + ": " + e.Err.Error()
}

// Unwrap returns [ratelimit.ErrInvalid] and what is wrong.
func (e *ConfigError) Unwrap() []error { return []error{ratelimit.ErrInvalid, e.Err} }

func (l Limit) wrong(field, format string, args ...any) error {
	return &ConfigError{l.Name, field, fmt.Errorf(format, args...)}
}

// algorithm returns the algorithm of the limit, or a [*ConfigError].
func (l Limit) algorithm() (ratelimit.Algorithm, error) {
	if l.Name == "" {
		return nil, l.wrong("name", "a limit needs a name")
	}
	if err := ratelimit.PerMinute(l.Name, 1).Validate(); err != nil {
		return nil, &ConfigError{l.Name, "name", err}
	}
	var limit ratelimit.Limit
	newOf, ok := counting[l.Algorithm]
	if ok {
		err := limit.UnmarshalText([]byte(l.Max))
		if limit.Name != "" {
			err = fmt.Errorf("%q has a name", l.Max)
		}
		if err != nil {
			return nil, &ConfigError{l.Name, "max", err}
		}
	} else if newOf, ok = windowless[l.Algorithm]; ok {
		var err error
		if limit.Max, err = strconv.ParseInt(l.Max, 10, 64); err != nil {
			return nil, l.wrong("max", "%q is not a number of units, which %s needs, without "+
				"a window", l.Max, l.Algorithm)
		}
	} else {
		return nil, l.wrong("algorithm", "%q is not one of log, bucket, fixed, counter, week, "+
			"month, quarter and in-flight", l.Algorithm)
	}
	limit.Name = l.Name
	a := newOf(limit)
	if err := a.Validate(); err != nil {
		return nil, &ConfigError{l.Name, "max", err}
	}
	return a, nil
}

// A cost returns the units of a request.
type cost func(*caddy.Replacer) (int64, error)

// errUnits means that placeholders do not make a number of units.
var errUnits = errors.New("the units are not a whole number from 0 on")

// cost returns the cost of requests under the limit, at most most, or a [*ConfigError].
func (l Limit) cost(most int64) (cost, error) {
	if strings.Contains(l.Units, "{") {
		return func(repl *caddy.Replacer) (int64, error) {
			n, err := strconv.ParseInt(repl.ReplaceAll(l.Units, ""), 10, 64)
			if err != nil || n < 0 {
				return 0, errUnits
			}
			return n, nil
		}, nil
	}
	n := int64(1)
	if l.Units != "" {
		var err error
		if n, err = strconv.ParseInt(l.Units, 10, 64); err != nil || n < 0 {
			return nil, l.wrong("units", "%q is not a whole number from 0 on", l.Units)
		}
	}
	if n > most {
		return nil, l.wrong("units", "a request costs %d, and the limit admits %d", n, most)
	}
	return func(*caddy.Replacer) (int64, error) { return n, nil }, nil
}

// A keyPart returns a part of a request's key.
type keyPart func(*http.Request, *caddy.Replacer) (string, error)

// key returns the function of the limit's key, or a [*ConfigError].
func (l Limit) key() (keyPart, error) {
	parts := make([]keyPart, max(len(l.Key), 1))
	parts[0] = clientKey
	for i, text := range l.Key {
		if text == "" {
			return nil, l.wrong("key", "a part is empty")
		}
		if address, ok := addresses[text]; ok {
			parts[i] = address
			continue
		}
		for placeholder := range addresses {
			if strings.Contains(text, placeholder) {
				return nil, l.wrong("key",
					"write the address %s as a part of its own, without other text", placeholder)
			}
		}
		parts[i] = func(_ *http.Request, repl *caddy.Replacer) (string, error) {
			return repl.ReplaceOrErr(text, true, true)
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return func(r *http.Request, repl *caddy.Replacer) (string, error) {
		values := make([]string, len(parts))
		for i, part := range parts {
			var err error
			if values[i], err = part(r, repl); err != nil {
				return "", err
			}
		}
		return httplimit.JoinKeys(values...), nil
	}, nil
}

// replaces reports whether the limit has placeholders for the replacer.
func (l Limit) replaces() bool {
	return strings.Contains(l.Units, "{") || slices.ContainsFunc(l.Key, func(part string) bool {
		_, isAddress := addresses[part]
		return !isAddress
	})
}

// sameKey reports whether two limits have one key.
func (l Limit) sameKey(other Limit) bool { return slices.Equal(l.Key, other.Key) }
