package sql

import (
	"slices"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/planted"
)

// mistakes are planted in the sources of the store. The suite has to report each by the rule.
var mistakes = []planted.Fault{
	{"postgres-no-lock", "postgres/concurrency/count-two-clients", "postgresql.go",
		`Statement{fmt.Sprintf(lockText, "$1::text"), []any{list}},`,
		`Statement{map[string]string{
			"no-lock":      "SELECT count(n) FROM unnest($1::text::bigint[]) AS n",
			"session-lock": "SELECT count(pg_advisory_xact_lock(n)) FROM " +
				"(SELECT pg_advisory_lock(1)) AS l, unnest($1::text::bigint[]) AS n",
			"": fmt.Sprintf(lockText, "$1::text"),
		}[map[bool]string{true: "no-lock"}[planted("postgres-no-lock")]+
			map[bool]string{true: "session-lock"}[planted("postgres-session-lock")]],
			[]any{list}},`},
	{"postgres-session-lock", "postgres/concurrency/count-two-clients", "", "", ""},
	{"postgres-locks-in-any-order", "postgres/takeall/storm", "tx.go",
		"	t.keys, t.locks = keys, locksOf(keys)\n", `	t.keys, t.locks = keys, locksOf(keys)
	if planted("postgres-locks-in-any-order") || planted("mariadb-locks-in-any-order") {
		for i := range t.locks {
			j := int(time.Now().UnixNano() / 64 % int64(i+1))
			t.locks[i], t.locks[j] = t.locks[j], t.locks[i]
		}
	}
`},
	{"mariadb-locks-in-any-order", "mariadb/takeall/storm", "", "", ""},
	{"postgres-repeatable-read", "postgres/concurrency/count-two-clients", "postgresql.go",
		`Statement{Text: begin},`, `Statement{Text: map[bool]string{
			true:  "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
			false: begin,
		}[planted("postgres-repeatable-read")]},`},
	{"postgres-clock-of-begin", "postgres/clock/order-two-clients", "postgresql.go",
		`	return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"`,
		`	switch {
	case planted("postgres-clock-of-begin"):
		return "(extract(epoch FROM transaction_timestamp()) * 1000000)::bigint"
	case planted("postgres-clock-of-a-zone"):
		return "(extract(epoch FROM clock_timestamp() AT TIME ZONE 'Asia/Tokyo') * 1000000)::bigint"
	case planted("postgres-clock-in-milliseconds"):
		return "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
	}
	return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"`},
	{"postgres-clock-of-a-zone", "postgres/clock/epoch", "", "", ""},
	{"postgres-clock-in-milliseconds", "postgres/clock/epoch", "", "", ""},
	{"postgres-no-commit", "postgres/op/take", "postgresql.go",
		`s, Statement{Text: commit})`, `s, Statement{Text: map[bool]string{
			true:  "ROLLBACK",
			false: commit,
		}[planted("postgres-no-commit")]})`},
	{"postgres-lost-answer-not-recorded", "postgres/errors/lost-answer", "postgresql.go",
		`	case state == "40003" || len(state) != 5:`,
		`	case planted("postgres-lost-answer-not-recorded"):
		return notSaved(err)
	case state == "40003" || len(state) != 5:`},
	{"inserts-only", "postgres/op/take", "dialect.go",
		"	return Statement{\"INSERT INTO \"",
		`	upsert, _, _ := strings.Cut(d.upsert(), ", expires")
	switch {
	case planted("inserts-only"):
		upsert = " ON CONFLICT DO NOTHING"
	case !planted("keeps-first-expiry"):
		upsert = d.upsert()
	}
	return Statement{"INSERT INTO " + table + " (stored_key, state, expires) " + list + upsert,
		args}
	return Statement{"INSERT INTO "`},
	{"keeps-first-expiry", "mariadb/expiry/sweep-not-early", "", "", ""},
	{"expires-by-the-millisecond", "sqlite/expiry/sweep-not-early", "tx.go",
		"		rows[i] = row{s.Key, s.Bytes, s.Expires}\n",
		`		rows[i] = row{s.Key, s.Bytes, s.Expires}
		if planted("expires-by-the-millisecond") {
			rows[i].expires -= s.Expires % 1000
		}
`},
	{"ignores-case", "mariadb/identity/similar-keys", "mysql.go",
		"func (d mySQL) text(s string) string { return",
		`func (d mySQL) text(s string) string {
	if planted("ignores-case") {
		s = strings.ToLower(s)
	}
	return`},
	{"cuts-keys", "sqlite/identity/adversarial-keys", "sqlite.go",
		`	return "CAST(" + d.bytes(hex.EncodeToString([]byte(s))) + " AS TEXT)"`,
		`	if planted("cuts-keys") {
		s = s[:min(len(s), 64)]
	}
	return "CAST(" + d.bytes(hex.EncodeToString([]byte(s))) + " AS TEXT)"`},
	{"mariadb-no-lock", "mariadb/concurrency/count-two-clients", "mysql.go",
		"		if got != len(part) {",
		`		if planted("mariadb-no-lock") {
			_, _ = c.ExecContext(ctx, "DO RELEASE_ALL_LOCKS()")
			continue
		}
		if got != len(part) {`},
	{"mariadb-keeps-locks", "mariadb/concurrency/count-two-clients", "mysql.go",
		"	_, err := c.ExecContext(ctx, \"DO \"+strings.Join(values, \", \"))",
		`	if planted("mariadb-keeps-locks") {
		return nil
	}
	_, err := c.ExecContext(ctx, "DO "+strings.Join(values, ", "))`},
	{"mariadb-clock-of-a-zone", "mariadb/clock/epoch", "mysql.go",
		"UTC_TIMESTAMP(6))\" }", `UTC_TIMESTAMP(6))" +
		map[bool]string{true: " + 32400000000"}[planted("mariadb-clock-of-a-zone")]
}`},
	{"mariadb-lost-answer-not-recorded", "mariadb/errors/lost-answer", "mysql.go",
		`	case "": // not of the server
		return err`, `	case "":
		if planted("mariadb-lost-answer-not-recorded") {
			return notSaved(err)
		}
		return err`},
	{"sqlite-deferred", "^TestContended$/^sqlite$", "sqlite.go",
		`"BEGIN IMMEDIATE")`, `map[bool]string{false: "BEGIN IMMEDIATE", true: "BEGIN"}[
			planted("sqlite-deferred")])`},
	{"sqlite-clock-in-milliseconds", "sqlite/clock/epoch", "tx.go",
		"		now = time.Now().UnixMicro()\n",
		`		now = time.Now().UnixMicro()
		if planted("sqlite-clock-in-milliseconds") {
			now /= 1000
		}
`},
	{"states-of-other-keys", "sqlite/takeall/results", "tx.go",
		"			states[i] = state\n", `			states[i] = state
			if other := len(states) - 1 - i; planted("states-of-other-keys") {
				states[i], states[other] = states[other], state
			}
`},
	{"sweeps-early", "mariadb/expiry/sweep-not-early", "sweep.go",
		`" AND expires <= "+now)`, `" AND expires <= "+now+
			map[bool]string{true: " + 3600000000"}[planted("sweeps-early")])`},
}

// TestMistakes plants the mistakes.
func TestMistakes(t *testing.T) {
	if planted.Running() {
		t.Skip("it runs the others")
	}
	faults, env := slices.Clone(mistakes), []string(nil)
	for i := range faults {
		if f := &faults[i]; !strings.HasPrefix(f.Test, "^") { // a rule
			f.Test = "^TestConformance$/^" + strings.ReplaceAll(f.Test, "/", "$/^") + "$"
		}
	}
	for _, k := range kinds {
		if k.image != "" && !k.rare {
			env = append(env, addressVariable(k.image)+"="+k.address(t))
		}
	}
	planted.InSource(t, "../../backend/sql", "sqlstore", faults, env...)
}
