// Package sqlite opens stores in SQLite files by URL: limits that outlive a restart, for the
// processes of one machine, without a server. Import it for its side effect:
//
//	import _ "github.com/truewindow/ratelimit/backend/sqlite"
//	…
//	store, err := backend.Open(ctx, "sqlite:/var/lib/app/limits.db")
//
// The file is created if there is none; its directory must exist. The driver is modernc.org/sqlite,
// which needs no C compiler. Package [github.com/truewindow/ratelimit/backend/sql] is the store. A
// URL takes the store's parameters, see [sqlstore.Register], and:
//
//	synchronous  full: what was acknowledged outlives a loss of power (the default);
//	             normal: it outlives a crash of the process, and decisions are faster
package sqlite

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/truewindow/ratelimit/backend"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
)

func init() { sqlstore.Register("sqlite", sqlstore.SQLite, open) }

func open(u *backend.URL) (*sql.DB, error) {
	synchronous, ok := u.Param("synchronous")
	switch {
	case !ok:
		synchronous = "full"
	case synchronous != "full" && synchronous != "normal":
		u.Invalid("synchronous", "it is neither full nor normal")
	}
	switch {
	case u.Hosts != nil:
		return nil, errors.New("it has a host: write sqlite:limits.db or sqlite:/path/limits.db")
	case u.Path == "" || strings.HasSuffix(u.Path, "/"):
		return nil, errors.New("it has no file: write sqlite:/path/limits.db")
	case strings.Contains(u.Path, ":memory:"):
		return nil, errors.New("a file is needed: for a store in memory write memory")
	}
	path := (&url.URL{Path: u.Path}).EscapedPath()
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(100)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous("+synchronous+")")
}
