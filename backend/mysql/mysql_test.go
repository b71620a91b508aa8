package mysql_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/mysql"
	"github.com/truewindow/ratelimit/driver"
)

func TestURLs(t *testing.T) {
	for _, c := range []struct{ url, want string }{ // an empty want is no error
		{"mysql://user:p%40ss@h/limits", ""},
		{"mariadb://user@[::1]:3307/limits?tls=skip-verify", ""},
		{"mysql://user:secret@h/limits?tls=true&table=states&timeout=2s", ""},
		{"mysql://user:secret@h", "it needs a database"},
		{"mysql://user:secret@h/a/b", "it needs a database"},
		{"mysql://user:secret@a,b/limits", "it needs one host"},
		{"mysql:limits", "it needs one host"},
		{"mysql://user:secret@h/limits?tls=preferred", `"tls": it is neither true nor skip-verify`},
		{"mysql://user:secret@h/limits?tls-ca=ca.pem", `"tls-ca": it needs tls=true`},
		{"mysql://user:secret@h/limits?tls=true&tls-ca=missing.pem", "the file cannot be read"},
		{"mysql://user:secret@h/limits?tls=true&tls-ca=mysql.go", "has no certificates"},
		{"mysql://user:secret@h/limits?parseTime=true", `"parseTime" is unknown`},
	} {
		s, err := backend.Open(t.Context(), c.url)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.url, err)
			} else if err := s.Close(); err != nil {
				t.Errorf("%s: Close: %v", c.url, err)
			}
			continue
		}
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %s", c.url, err, c.want)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: the password is in %v", c.url, err)
		}
	}
}
