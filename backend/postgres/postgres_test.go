package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/postgres"
	"github.com/truewindow/ratelimit/driver"
)

func TestURLs(t *testing.T) {
	for _, c := range []struct{ url, want string }{ // an empty want is no error
		{"postgres://user:p%40ss@a,b:6543/limits?target_session_attrs=read-write", ""},
		{"postgresql://user:secret@h/limits?sslmode=require&channel_binding=require", ""},
		{"postgres:///limits?host=/var/run/postgresql&table=limits.states", ""},
		{"postgres://h/limits?sslmode=disable&default_query_exec_mode=exec&transactions=4", ""},
		{"postgres://user:secret@h/limits?sslmode=wrong", "sslmode"},
		{"postgres://user:secret@h/limits?sslmode=verify-ca&sslrootcert=no.pem", "no.pem"},
		{"postgres://user:secret@h/limits?sslkey=k&sslcert=c&sslpassword=secret", "is wrong"},
		{"postgres://user:secret@h/limits?default_query_exec_mode=fast", "default_query_exec_mode"},
		{"postgres://user:secret@h/limits?connect_timeout=secret-1", "connect_timeout"},
		{"postgres://user:secret@h/limits?prefix=rl", `"prefix" is unknown`},
		{"postgres://user:secret@h/limits?table=a.b.c", "is not a table"},
	} {
		s, err := backend.Open(t.Context(), c.url)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.url, err)
				continue
			}
			if strings.Contains(s.Name+fmt.Sprintf("%+v", s.Store), "secret") {
				t.Errorf("%s is shown as %s", c.url, s.Name)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s: Close: %v", c.url, err)
			}
			continue
		}
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %s", c.url, err, c.want)
		}
		if text := fmt.Sprint(err); strings.Contains(text, ":secret@") ||
			strings.Contains(text, "d=secret") {
			t.Errorf("%s: the password is in %v", c.url, err)
		}
	}
}
