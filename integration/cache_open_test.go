package integration

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
)

// cacheOptions are those of a store that caches refusals.
type cacheOptions struct {
	redisstore.Options
	entries, bytes int
	age            time.Duration
	hasty          bool   // the client gives up as soon as Open lets it
	onInvalidation func() // called by the client, which is set so
}

// openCache returns a new store that caches refusals.
func (lib library) openCache(d dialing, o cacheOptions) (caching, error) {
	if lib.name == "valkey-go" {
		option := d.valkeyOption()
		if o.onInvalidation != nil {
			option.OnInvalidations = func([]valkey.ValkeyMessage) { o.onInvalidation() }
		}
		s, err := valkeystore.Open(option, ratelimit.FailClosed, &valkeystore.OpenOptions{
			Options: valkeystore.Options(o.Options), CacheEntries: o.entries, CacheBytes: o.bytes, CacheAge: o.age,
		})
		return valkeyCaching{valkeyStore{s}}, err
	}
	option := d.rueidisOption()
	if o.onInvalidation != nil {
		option.OnInvalidations = func([]rueidis.RedisMessage) { o.onInvalidation() }
	}
	s, err := rueidisstore.Open(option, ratelimit.FailClosed, &rueidisstore.OpenOptions{
		Options: rueidisstore.Options(o.Options), CacheEntries: o.entries, CacheBytes: o.bytes, CacheAge: o.age,
	})
	return rueidisStore{s}, err
}

// newCache is openCache with a store that is closed at the end of the test. It and its client are patient unless told otherwise. Of a cluster
// the client is told one server: where it is told several, it gives up first connections of which it has two, and that is a flush.
func (lib library) newCache(t testing.TB, d dialing, o cacheOptions) caching {
	t.Helper()
	d.addrs, d.patient = d.addrs[:1], !o.hasty
	if o.Timeout == 0 {
		o.Timeout = patient
	}
	s, err := lib.openCache(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
