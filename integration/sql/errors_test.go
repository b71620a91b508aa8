package sql

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/driver"
)

// TestUnavailable: a server that does not listen, and a pool that is closed, are an outage.
func TestUnavailable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	each(t, func(t *testing.T, k kind) {
		closed := k.open(t, listener.Addr().String())
		closed.Close()
		pools := map[string]*sql.DB{"closed": closed}
		if k.dialect != sqlstore.SQLite {
			pools["refused"] = k.open(t, listener.Addr().String())
		}
		for name, pool := range pools {
			s, err := sqlstore.New(pool, k.dialect, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Take(t.Context(), of("user:42", 1))
			if !driver.IsOutage(err) || errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("%s: %v, want an outage", name, err)
			}
			if strings.Contains(fmt.Sprint(err), password) {
				t.Errorf("%s: the password is in %q", name, err)
			}
		}
	})
}

// TestErrorsHaveNoKeys: the database's errors about a row quote its key. The store's do not, in no
// form, nor do the errors that they wrap.
func TestErrorsHaveNoKeys(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		s := db.newStore(t, &sqlstore.Options{Timeout: 4 * time.Second, SweepEvery: -1})
		fail := map[sqlstore.Dialect][]string{
			sqlstore.PostgreSQL: {"CREATE FUNCTION " + db.table("fail") +
				"() RETURNS trigger LANGUAGE plpgsql AS " +
				"'BEGIN RAISE EXCEPTION ''no % here'', NEW.stored_key; END'",
				"CREATE TRIGGER fail BEFORE INSERT ON " + db.table("ratelimit_states") +
					" FOR EACH ROW EXECUTE FUNCTION " + db.table("fail") + "()"},
			sqlstore.MySQL: {"CREATE TRIGGER " + db.table("fail") + " BEFORE INSERT ON " +
				db.table("ratelimit_states") + " FOR EACH ROW BEGIN " +
				"SET @text = CONCAT('no ', NEW.stored_key, ' here'); " +
				"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = @text; END"},
			sqlstore.SQLite: {"CREATE TRIGGER fail BEFORE INSERT ON ratelimit_states BEGIN " +
				"SELECT RAISE(ABORT, 'no secret:key:calls:log3 here'); END"},
		}
		dropOf := map[sqlstore.Dialect][]string{
			sqlstore.PostgreSQL: {"DROP TRIGGER fail ON " + db.table("ratelimit_states")},
			sqlstore.MySQL:      {"DROP TRIGGER " + db.table("fail")},
			sqlstore.SQLite:     {"DROP TRIGGER fail"},
		}
		db.exec(t, fail[k.dialect]...)
		_, err := s.Take(t.Context(), of("secret:key", 1))
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%v, want an error that says that nothing was recorded", err)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if text := fmt.Sprintf("%v %+v %q", e, e, e); strings.Contains(text, "secret") {
				t.Errorf("%q", text)
			}
		}
		if !strings.Contains(fmt.Sprint(err), "may contain keys") {
			t.Errorf("%v: the database has quoted no key, so this test proves nothing", err)
		}

		db.exec(t, dropOf[k.dialect]...)
		if _, err := s.Take(t.Context(), of("secret:key", 1)); err != nil {
			t.Fatal(err)
		}
		db.exec(t, "UPDATE "+db.table("ratelimit_states")+" SET expires = 1")
		for i, statement := range fail[k.dialect] {
			statement = strings.NewReplacer("BEFORE INSERT", "BEFORE DELETE", "NEW.", "OLD.",
				"RETURN NULL", "RETURN OLD").Replace(statement)
			if i == 0 {
				statement = strings.Replace(statement, "CREATE F", "CREATE OR REPLACE F", 1)
			}
			db.exec(t, statement)
		}
		if _, err := s.Sweep(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("a sweep: %v", err)
		}
	})
}
