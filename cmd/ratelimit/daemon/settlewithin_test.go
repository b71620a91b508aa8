package daemon

import (
	"path/filepath"
	"testing"
)

// TestSettleWithinHoldVariable: the variable has the meaning of the flag.
func TestSettleWithinHoldVariable(t *testing.T) {
	t.Setenv("RATELIMIT_SETTLE_WITHIN_HOLD", "true")
	t.Setenv("RATELIMIT_WRITE_TOKEN_FILE", filepath.Join(t.TempDir(), "none"))
	if c := parseServe(t, []string{"serve"}); !c.SettleWithinHold {
		t.Error("the variable does not set it")
	}
}
