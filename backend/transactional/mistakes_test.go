package transactional_test

import (
	"os"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/internal/testkit/planted"
)

// mistakeVariable names, in the environment of a process, the mistake of its database.
const mistakeVariable = "RATELIMIT_TRANSACTIONAL_MISTAKE"

// TestMistakes plants mistakes that an author of a Tx may make. The suite finds each by the rule
// that is about it.
func TestMistakes(t *testing.T) {
	if os.Getenv(mistakeVariable) != "" {
		t.Skip("this is the process of a mistake")
	}
	for mistake, rule := range map[string]string{
		"no lock":                            "concurrency/count-two-clients",
		"lock after read":                    "concurrency/count-two-clients",
		"clock in milliseconds":              "clock/epoch",
		"states in another order":            "takeall/state",
		"ignores case":                       "identity/similar-keys",
		"cuts keys":                          "identity/adversarial-keys",
		"cuts states":                        "step/large-state",
		"expires early":                      "expiry/sweep-not-early",
		"sweeps by another clock":            "expiry/sweep-not-early",
		"keeps what is deleted":              "op/reset",
		"inserts only":                       "op/take",
		"takes a lost answer for a rollback": "errors/lost-answer",
	} {
		t.Run(strings.ReplaceAll(mistake, " ", "-"), func(t *testing.T) {
			t.Parallel()
			planted.WantCaught(t, rule, nil, mistakeVariable+"="+mistake)
		})
	}
}
