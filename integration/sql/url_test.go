package sql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/mysql"
	"github.com/truewindow/ratelimit/backend/serverstore"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	_ "github.com/truewindow/ratelimit/backend/sqlite"
	"github.com/truewindow/ratelimit/driver"
)

// url returns a URL of the database, for a user who may be "". A busy machine may take more than
// the default timeout to create the table.
func (db *database) url(user, password string) string {
	who := ""
	if user != "" {
		who = user + ":" + password + "@"
	}
	switch db.dialect {
	case sqlstore.PostgreSQL:
		return "postgres://" + who + db.direct + "/postgres?sslmode=disable&timeout=4s&table=" +
			db.schema + ".ratelimit_states"
	case sqlstore.MySQL:
		return "mysql://" + who + db.direct + "/" + db.schema + "?timeout=4s"
	default:
		return "sqlite:" + db.direct + "?timeout=4s&synchronous=normal"
	}
}

// root is a user who may do everything.
func (db *database) root() string {
	switch db.dialect {
	case sqlstore.PostgreSQL:
		return "postgres"
	case sqlstore.MySQL:
		return "root"
	default:
		return ""
	}
}

func (db *database) openURL(t *testing.T, url string) *backend.Store {
	t.Helper()
	s, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestURL: stores of one URL create their table at their first decisions, and admit a limit's units
// together.
func TestURL(t *testing.T) {
	demand := driver.Demand{Key: "user:42", N: 1,
		Algorithm: algorithm.SlidingLog(driver.PerHour("calls", 10))}
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		var wg sync.WaitGroup
		var admitted atomic.Int64
		for range 4 {
			s := db.openURL(t, db.url(db.root(), password))
			for range 10 {
				wg.Go(func() {
					res, err := s.Take(t.Context(), demand)
					if err != nil {
						t.Error(err)
					} else if res.Allowed {
						admitted.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if admitted.Load() != 10 {
			t.Errorf("%d are admitted, want 10", admitted.Load())
		}
	})
}

// TestURLProbe: a probe creates the table, and says who answers, and who is refused.
func TestURLProbe(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		found, err := db.openURL(t, db.url(db.root(), password)).Probe(t.Context())
		if err != nil || found.Name != k.dialect.String() || found.Version == "" {
			t.Errorf("%+v, %v", found, err)
		}
		if k.dialect == sqlstore.SQLite {
			return
		}
		db.exec(t, "DELETE FROM "+db.table("ratelimit_states")) // which is there
		_, err = db.openURL(t, db.url(db.root(), "wrong-password")).Probe(t.Context())
		if !errors.Is(err, serverstore.ErrDenied) ||
			strings.Contains(fmt.Sprint(err), "wrong-password") {
			t.Errorf("with a wrong password: %v", err)
		}

		user := "user_of_" + db.schema
		drop := "DROP USER " + user
		switch k.dialect {
		case sqlstore.PostgreSQL:
			db.exec(t, "CREATE ROLE "+user+" LOGIN PASSWORD '"+password+"'",
				"GRANT USAGE ON SCHEMA "+db.schema+" TO "+user)
			drop = "DROP OWNED BY " + user + "; " + drop
		case sqlstore.MySQL:
			db.exec(t, "CREATE USER "+user+" IDENTIFIED BY '"+password+"'",
				"GRANT SELECT ON "+db.schema+".* TO "+user)
		}
		t.Cleanup(func() {
			for statement := range strings.SplitSeq(drop, "; ") {
				db.exec(t, statement)
			}
		})
		s := db.openURL(t, db.url(user, password))
		if _, err := s.Probe(t.Context()); !errors.Is(err, serverstore.ErrDenied) {
			t.Errorf("without the right to write: %v", err)
		}
		on := " ON " + db.table("ratelimit_states") + " TO " + user
		db.exec(t, "GRANT SELECT, INSERT, UPDATE"+on)
		if _, err := s.Probe(t.Context()); !errors.Is(err, serverstore.ErrDenied) {
			t.Errorf("without the right to delete: %v", err)
		}
		db.exec(t, "GRANT DELETE"+on)
		if _, err := s.Probe(t.Context()); err != nil {
			t.Errorf("without the right to create tables: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := s.Take(ctx, driver.Demand{Key: "k", N: 1, Algorithm: hourly}); err != nil {
			t.Errorf("without the right to create tables: %v", err)
		}
	})
}
