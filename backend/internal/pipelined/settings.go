package pipelined

import (
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// The settings of a client with a cache, if the caller sets none. If a server does not answer, its
// connections end within a second, and with them the use of cached refusals whose changes it cannot
// report.
const (
	KeepAlive    = 200 * time.Millisecond
	WriteTimeout = 500 * time.Millisecond
	DialTimeout  = 500 * time.Millisecond
)

// SentinelRefresh is how often a client asks the Sentinels for the primary, if the caller does not
// say. Their event of a failover may get lost; the interval is the one that the libraries suggest.
const SentinelRefresh = 5 * time.Second

// TrackingOptions make a server report changes of what a client has read after CLIENT CACHING YES,
// except its own changes.
func TrackingOptions() []string { return []string{"OPTIN", "NOLOOP"} }

// Settings are those of a caller's options for a client that matter to a cache.
type Settings struct {
	AlwaysRESP2, DisableCache, DisableAutoPipelining bool

	ConnLifetime    time.Duration
	TrackingOptions []string
	Replicas        bool // commands may go to replicas
}

// CheckSettings returns an error that names the settings that rule caching out.
func CheckSettings(s Settings) error {
	var wrong []string
	for _, rule := range []struct {
		broken bool
		what   string
	}{
		{s.AlwaysRESP2, "AlwaysRESP2: a server reports changes over RESP3 only"},
		{s.DisableCache, "DisableCache: without the client's tracking no changes are reported"},
		{s.DisableAutoPipelining,
			"DisableAutoPipelining: a pooled connection reports changes only when it is used"},
		{s.ConnLifetime != 0,
			"ConnLifetime: at its end the client may send a demand a second time"},
		{s.TrackingOptions != nil, "ClientTrackingOptions: Open sets its own"},
		{s.Replicas, "SendToReplicas, ReplicaOnly: a replica cannot decide"},
	} {
		if rule.broken {
			wrong = append(wrong, rule.what)
		}
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%w options: Open cannot cache with these settings: %s",
		driver.ErrInvalid, strings.Join(wrong, "; "))
}
