package pipelined

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// TestCheckSettings: each setting that rules caching out is named, and all of them at once.
func TestCheckSettings(t *testing.T) {
	all := Settings{
		AlwaysRESP2: true, DisableCache: true, DisableAutoPipelining: true,
		ConnLifetime: time.Hour, TrackingOptions: []string{}, Replicas: true,
	}
	names := []string{
		"AlwaysRESP2", "DisableCache", "DisableAutoPipelining",
		"ConnLifetime", "ClientTrackingOptions", "SendToReplicas",
	}
	for name, s := range map[string]Settings{
		"AlwaysRESP2":           {AlwaysRESP2: true},
		"DisableCache":          {DisableCache: true},
		"DisableAutoPipelining": {DisableAutoPipelining: true},
		"ConnLifetime":          {ConnLifetime: 1},
		"ClientTrackingOptions": {TrackingOptions: []string{"BCAST"}},
		"SendToReplicas":        {Replicas: true},
	} {
		err := CheckSettings(s)
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, other := range names {
			if strings.Contains(err.Error(), other) != (other == name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	err := CheckSettings(all)
	for _, name := range names {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v lacks %s", err, name)
		}
	}
	if err := CheckSettings(Settings{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
