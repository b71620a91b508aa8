package envoy

import (
	"slices"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// codes returns the codes of the descriptors of an answer: true for OK.
func codesOf(resp *rls.RateLimitResponse) (all []bool) {
	for _, s := range resp.GetStatuses() {
		all = append(all, s.GetCode() == ok)
	}
	return all
}

// TestQuotaMode: a call is refused if all its quotas are, its statuses are those of each, and the
// metadata tells which have room.
func TestQuotaMode(t *testing.T) {
	f := start(t, Config{DynamicMetadata: true})
	for i, want := range []struct {
		code               rls.RateLimitResponse_Code
		primary, secondary bool
	}{{ok, true, true}, {ok, true, true}, {ok, false, true}, {ok, false, true}, {ok, false, true},
		{over, false, false}} {
		resp := f.ask(request("primary=a", "secondary=a"))
		if resp.GetOverallCode() != want.code ||
			!slices.Equal(codesOf(resp), []bool{want.primary, want.secondary}) {
			t.Errorf("call %d: %v", i, resp)
		}
		fields := resp.GetDynamicMetadata().GetFields()
		has := fields["metadata"].GetStructValue().GetFields()["has"].GetStructValue().GetFields()
		if has["primary"].GetBoolValue() != want.primary ||
			has["secondary"].GetBoolValue() != want.secondary {
			t.Errorf("call %d: metadata %v", i, fields)
		}
		if _, waits := fields["retryAfterMs"]; waits != (want.code == over) {
			t.Errorf("call %d: metadata %v", i, fields)
		}
	}
	// A descriptor without quota_mode refuses alone, and one without a limit is none.
	f.expect(ok, request("primary=b", "secondary=b", "user=1", "nothing=1"))
	f.expect(over, request("primary=b", "secondary=b", "user=banned"))
	f.remaining(1, "primary=b")
	f.expect(over, request("primary=a", "nothing=1"))
}

// TestQuotaCharge: what a stream used is charged beyond the quotas, whatever the charge of refused
// calls is, and closes them. Without units of its own a descriptor takes what there is.
func TestQuotaCharge(t *testing.T) {
	for _, charge := range []Charge{ChargeAll, ChargeEach, ChargeAlways} {
		t.Run(string(charge), func(t *testing.T) {
			f := start(t, Config{Charge: charge})
			admitted := 0
			for range 20 {
				if f.ask(used("primary=a", 0)).GetOverallCode() == ok {
					admitted++
					f.ask(used("primary=a", 900))
				}
			}
			if admitted != 1 {
				t.Errorf("%d calls were admitted, want 1", admitted)
			}
			if f.log.Len() > 0 || f.service.Stats().Looks > 0 {
				t.Errorf("a warning that charges are dropped: %s", f.log)
			}
			if charge == ChargeAlways {
				return
			}
			long := request("primary=b")
			long.HitsAddend = 900
			f.expect(over, long)
			f.expect(ok, request("primary=b"))
		})
	}
}
