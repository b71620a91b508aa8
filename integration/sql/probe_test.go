package sql

import (
	"strings"
	"testing"

	sqlstore "github.com/truewindow/ratelimit/backend/sql"
)

// TestProbe: Probe finds what is wrong with a table or a server, and is content with the schema.
func TestProbe(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		db := k.newDatabase(t)
		store := func(name string) *sqlstore.Store {
			s, err := sqlstore.New(db.pool(t), k.dialect, &sqlstore.Options{Table: db.table(name)})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if err := store("missing").Probe(t.Context()); err == nil {
			t.Error("a missing table")
		}
		for range 2 {
			if err := store("good").Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := store("good").Probe(t.Context()); err != nil {
				t.Errorf("the schema: %v", err)
			}
		}
		if k.dialect == sqlstore.PostgreSQL {
			db.exec(t, "CREATE COLLATION "+db.table("folds")+" (provider = icu, "+
				"locale = 'und-u-ks-level2', deterministic = false)")
		}
		for name, columns := range map[string]map[sqlstore.Dialect]string{
			"without_a_key": {
				0: "stored_key %text NOT NULL, state %blob NOT NULL, expires bigint NOT NULL"},
			"without_a_column": {0: "stored_key %text PRIMARY KEY, state %blob NOT NULL"},
			"folds_case": {
				sqlstore.PostgreSQL: "stored_key text COLLATE " + db.table("folds") +
					" PRIMARY KEY, state bytea, expires bigint",
				sqlstore.MySQL: "stored_key VARCHAR(250) PRIMARY KEY, state LONGBLOB, " +
					"expires BIGINT",
				sqlstore.SQLite: "stored_key TEXT COLLATE NOCASE PRIMARY KEY, state BLOB, " +
					"expires INT",
			},
			"short_key": {
				sqlstore.PostgreSQL: "stored_key varchar(64) PRIMARY KEY, state bytea, " +
					"expires bigint",
				sqlstore.MySQL: "stored_key VARBINARY(64) PRIMARY KEY, state LONGBLOB, " +
					"expires BIGINT"},
			"text_state": {
				sqlstore.PostgreSQL: "stored_key text PRIMARY KEY, state text, expires bigint",
				sqlstore.MySQL: "stored_key VARBINARY(250) PRIMARY KEY, state LONGTEXT, " +
					"expires BIGINT"},
			"short_state": {
				sqlstore.MySQL: "stored_key VARBINARY(250) PRIMARY KEY, state TINYBLOB, " +
					"expires BIGINT"},
			"short_expires": {
				sqlstore.PostgreSQL: "stored_key text PRIMARY KEY, state bytea, expires int",
				sqlstore.MySQL: "stored_key VARBINARY(250) PRIMARY KEY, state LONGBLOB, " +
					"expires INT"},
			"without_transactions": {
				sqlstore.MySQL: "stored_key VARBINARY(250) PRIMARY KEY, state LONGBLOB, " +
					"expires BIGINT) ENGINE=MyISAM COMMENT=('x'"},
		} {
			definition := columns[k.dialect]
			if definition == "" {
				definition = columns[0]
			}
			if definition == "" {
				continue
			}
			types := map[sqlstore.Dialect][2]string{
				sqlstore.PostgreSQL: {"text", "bytea"},
				sqlstore.MySQL:      {"VARBINARY(250)", "LONGBLOB"},
				sqlstore.SQLite:     {"TEXT", "BLOB"},
			}[k.dialect]
			definition = strings.NewReplacer("%text", types[0], "%blob", types[1],
				") ENGINE=MyISAM COMMENT=('x'", ") ENGINE=MyISAM").Replace(definition)
			if !strings.Contains(definition, "ENGINE") {
				definition += ")"
			}
			db.exec(t, "CREATE TABLE "+db.table(name)+" ("+definition)
			err := store(name).Probe(t.Context())
			t.Logf("%s: %v", name, err)
			if err == nil {
				t.Errorf("%s is not found", name)
			}
		}
	})
}
