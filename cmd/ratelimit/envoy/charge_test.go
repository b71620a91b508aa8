package envoy

import (
	"fmt"
	"math"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/driver"
)

// used asks for a number of units of a descriptor.
func used(text string, n uint64) *rls.RateLimitRequest {
	req := request(text)
	req.Descriptors[0].HitsAddend = wrapperspb.UInt64(n)
	return req
}

// TestBudgetCharge: calls look at a limit of a file, 10 a minute, and charge 9 when they end. Only
// what is always charged closes the limit.
func TestBudgetCharge(t *testing.T) {
	always := map[string]Charge{"shop": ChargeAlways}
	for name, c := range map[string]struct {
		config   Config
		admitted int
	}{
		"default":        {Config{}, 50},
		"each":           {Config{Charge: ChargeEach}, 50},
		"always":         {Config{Charge: ChargeAlways}, 2},
		"always reached": {Config{Charge: ChargeAlways, Reached: true}, 2},
		"of the domain":  {Config{ChargeOf: always}, 2},
		"of another":     {Config{ChargeOf: map[string]Charge{"x": ChargeAlways}}, 50},
		"but the domain": {Config{Charge: ChargeAlways,
			ChargeOf: map[string]Charge{"shop": ChargeAll}}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, c.config)
			admitted := 0
			for range 50 {
				if f.ask(used("user=42", 0)).GetOverallCode() == ok {
					admitted++
					f.ask(used("user=42", 9))
				}
			}
			if admitted != c.admitted {
				t.Errorf("%d calls were admitted, want %d", admitted, c.admitted)
			}
			warnings, looks := strings.Count(f.log.String(), "--envoy-charge=shop=always"),
				f.service.Stats().Looks
			if closed := c.admitted == 2; closed && warnings+int(looks) > 0 ||
				!closed && (warnings != 1 || looks != 50) {
				t.Errorf("%d warnings of %d looks: %s", warnings, looks, f.log)
			}
		})
	}
}

// TestChargeAlways: each descriptor is charged, whether it or another is refused, and says whether
// its units fitted.
func TestChargeAlways(t *testing.T) {
	f := start(t, Config{Charge: ChargeAlways})
	f.call(ok, "plan=a")
	f.call(ok, "plan=a")
	s := f.call(over, "user=42", "plan=a", "user=43,path=/", "tried=1", "user=42").GetStatuses()
	for i, want := range []rls.RateLimitResponse_Code{ok, over, ok, ok, ok} {
		if s[i].GetCode() != want {
			t.Errorf("status %d is %v, want %v", i, s[i], want)
		}
	}
	f.remaining(8, "user=42")
	f.remaining(2, "user=43,path=/")
	for _, hits := range []uint64{11, 1<<40 + 1, math.MaxUint64} {
		f.expect(over, used(fmt.Sprintf("user=x%d", hits), hits))
		f.remaining(0, fmt.Sprintf("user=x%d", hits))
	}
}

// TestLookWarnings: limits that admit everything, others than those of files, and requests with
// units need no warning, and there are not arbitrarily many.
func TestLookWarnings(t *testing.T) {
	f := start(t, Config{}, budgetLimit("own", 0))
	f.ask(used("user=root", 0))
	f.ask(used("own=1", 0))
	f.ask(used("nothing=1", 0))
	f.ask(request("user=1"))
	if f.log.Len() > 0 || f.service.Stats().Looks != 0 {
		t.Errorf("%s", f.log)
	}
	var w warned
	first := 0
	for i := range 2 * maxWarned {
		if w.first(fmt.Sprint(i)) {
			first++
		}
	}
	if first != maxWarned || w.first("0") {
		t.Errorf("%d domains are warned of", first)
	}
}

func TestChargeText(t *testing.T) {
	for _, text := range []string{"", "ALWAYS", "none"} {
		if err := new(Charge).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a charge", text)
		}
	}
}

// TestChargeAlwaysFailure: what cannot be charged is an error, as other calls.
func TestChargeAlwaysFailure(t *testing.T) {
	f := startOn(t, down{driver.ErrUnavailable}, Config{Charge: ChargeAlways})
	if _, err := f.client.ShouldRateLimit(t.Context(), request("user=1")); err == nil {
		t.Error("no error")
	}
}
