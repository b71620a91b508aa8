package postgres

import (
	"os"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/planted"
)

// mistakeVariable names, in the environment of a process, the mistake of its store.
const mistakeVariable = "RATELIMIT_POSTGRES_MISTAKE"

const noLock = `SELECT $1::text[]`

// session is appended to the URL of a pool by some mistakes.
var session string

// mistakes are errors in the SQL of a store, each with the rule of the suite that it breaks.
var mistakes = map[string]struct {
	rule  string
	plant func()
}{
	"no lock": {"concurrency/count", func() { lock = noLock }},
	"locks rows, which a new key lacks": {"concurrency/count", func() {
		lock = `SELECT FROM ratelimit_states WHERE key = ANY($1) ORDER BY key FOR UPDATE`
	}},
	"locks and reads in one statement": {"concurrency/count", func() {
		read = strings.Replace(read, "FROM unnest",
			"FROM (SELECT count(*) FROM ("+lock+") AS l) AS locked, unnest", 1)
		lock = noLock
	}},
	"locks for the session": {"concurrency/count", func() {
		lock = strings.Replace(lock, "pg_advisory_xact_lock", "pg_advisory_lock", 1)
	}},
	"locks in any order": {"takeall/storm", func() {
		lock = strings.Replace(lock, "DISTINCT ", "", 1)
		lock = strings.Replace(lock, "ORDER BY n", "ORDER BY random()", 1)
	}},
	"repeatable read": {"concurrency/count", func() {
		session = "&default_transaction_isolation=repeatable%20read"
	}},
	"clock of BEGIN": {"clock/order-two-clients", func() {
		clock = strings.Replace(clock, "clock_timestamp", "transaction_timestamp", 1)
	}},
	"clock without a zone": {"clock/epoch", func() {
		clock = strings.Replace(clock, "clock_timestamp()", "clock_timestamp()::timestamp", 1)
		session = "&TimeZone=Asia/Tokyo"
	}},
	"clock in milliseconds": {"clock/epoch", func() {
		clock = strings.Replace(clock, "1000000", "1000", 1)
	}},
	"inserts only": {"op/take", func() {
		write, _, _ = strings.Cut(write, "UPDATE SET")
		write += "NOTHING"
	}},
	"keeps the first expiry": {"expiry/sweep-not-early", func() {
		write, _, _ = strings.Cut(write, ", expires = excluded")
	}},
	"expires by the millisecond": {"expiry/sweep-not-early", func() {
		write = strings.Replace(write, "$3", "$3::bigint / 1000 * 1000", 1)
	}},
	"ignores case": {"identity/similar-keys", func() {
		write = strings.Replace(write, "$1", "lower($1)", 1)
		read = strings.Replace(read, "unnest($1::text[])",
			"unnest(ARRAY(SELECT lower(key) FROM unnest($1::text[]) AS key))", 1)
	}},
	"cuts keys": {"identity/adversarial-keys", func() {
		write = strings.Replace(write, "$1", "left($1, 64)", 1)
		read = strings.Replace(read, "unnest($1::text[])",
			"unnest(ARRAY(SELECT left(key, 64) FROM unnest($1::text[]) AS key))", 1)
	}},
	"states as text": {"op/take", func() {
		write = strings.Replace(write, "$2::bytea", "convert_to(convert_from($2, 'UTF8'), 'UTF8')",
			1)
	}},
	"reads only the rows that are there": {"op/take", func() {
		read = `SELECT array_agg(state) FROM ratelimit_states WHERE key = ANY($1::text[])`
	}},
}

// TestMistakes plants the mistakes. The suite has to report the rule that each breaks.
func TestMistakes(t *testing.T) {
	if os.Getenv(mistakeVariable) != "" {
		t.Skip("this is the process of a mistake")
	}
	address := start(t, "fsync=off")
	for mistake, m := range mistakes {
		t.Run(strings.ReplaceAll(mistake, " ", "-"), func(t *testing.T) {
			t.Parallel()
			planted.WantCaught(t, m.rule, []string{"SQLSTATE 42", "unable to encode"},
				mistakeVariable+"="+mistake, addressVariable+"="+address)
		})
	}
}
