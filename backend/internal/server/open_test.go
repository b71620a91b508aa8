package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

var openWords = Words{Package: "teststore", Invalid: errors.New("teststore: invalid options")}

// TestCheckSettings holds that each setting that rules caching out is named, and all of them at once.
func TestCheckSettings(t *testing.T) {
	all := Settings{
		AlwaysRESP2: true, DisableCache: true, DisableAutoPipelining: true, ConnLifetime: time.Hour, TrackingOptions: []string{}, Replicas: true,
	}
	names := []string{"AlwaysRESP2", "DisableCache", "DisableAutoPipelining", "ConnLifetime", "ClientTrackingOptions", "SendToReplicas"}
	for name, s := range map[string]Settings{
		"AlwaysRESP2":           {AlwaysRESP2: true},
		"DisableCache":          {DisableCache: true},
		"DisableAutoPipelining": {DisableAutoPipelining: true},
		"ConnLifetime":          {ConnLifetime: 1},
		"ClientTrackingOptions": {TrackingOptions: []string{"BCAST"}},
		"SendToReplicas":        {Replicas: true},
	} {
		err := openWords.CheckSettings(s)
		if !errors.Is(err, openWords.Invalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, other := range names {
			if strings.Contains(err.Error(), other) != (other == name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	err := openWords.CheckSettings(all)
	for _, name := range names {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v lacks %s", err, name)
		}
	}
	if err := openWords.CheckSettings(Settings{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func TestCheckCacheOptions(t *testing.T) {
	for name, o := range map[string]CacheOptions{
		"CacheEntries": {MaxEntries: -1}, "CacheBytes": {MaxBytes: -1}, "CacheAge": {MaxAge: -1},
	} {
		if err := o.Check(openWords); !errors.Is(err, openWords.Invalid) || !strings.Contains(err.Error(), name+" -1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []CacheOptions{{}, {MaxEntries: 1, MaxBytes: 1, MaxAge: 1}} {
		if err := o.Check(openWords); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestRefused(t *testing.T) {
	cause := errors.New("no route")
	err := openWords.Refused(cause)
	if !errors.Is(err, ratelimit.ErrUnavailable) || !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "teststore: ") {
		t.Error(err)
	}
}
