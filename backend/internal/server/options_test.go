package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

func TestCheckOptions(t *testing.T) {
	for name, o := range map[string]serverstore.OpenOptions{
		"CacheEntries": {CacheEntries: -1}, "CacheBytes": {CacheBytes: -1},
		"CacheAge": {CacheAge: -1},
	} {
		if err := CheckOptions(o); !errors.Is(err, driver.ErrInvalid) ||
			!strings.Contains(err.Error(), name+" -1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []serverstore.Options{
		{Linger: -1}, {Linger: DefaultTimeout/2 + 1}, {Timeout: 9, Linger: 5},
		{Linger: 1, NoBatching: true},
	} {
		err := CheckOptions(serverstore.OpenOptions{Options: o})
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "Linger") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []serverstore.OpenOptions{
		{}, {CacheEntries: 1, CacheBytes: 1, CacheAge: 1},
		{Options: serverstore.Options{Linger: DefaultTimeout / 2}},
	} {
		if err := CheckOptions(o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestRefused(t *testing.T) {
	cause := errors.New("no route")
	err := Words{Package: "teststore"}.Refused(cause)
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, cause) ||
		!strings.HasPrefix(err.Error(), "teststore: ") {
		t.Error(err)
	}
}
