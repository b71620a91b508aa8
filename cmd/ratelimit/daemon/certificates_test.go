package daemon

import (
	"os"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestLastExpiry: of several authorities the one that expires last counts, in any order.
func TestLastExpiry(t *testing.T) {
	a := apitest.NewAuthority(t)
	var texts [2]string
	for i, name := range []string{"first", "last"} {
		a.Issue(name)
		text, err := os.ReadFile(a.Path(name + ".pem"))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	for _, text := range []string{texts[0] + texts[1], texts[1] + texts[0]} {
		if got := lastExpiry([]byte(text)); got.Unix() != a.Expiry.Unix() {
			t.Errorf("%v, want %v", got, a.Expiry)
		}
	}
}

func TestTLSFlags(t *testing.T) {
	for want, f := range map[string]TLSFlags{
		"need each other": {Cert: "a"}, "need each": {Key: "a"},
		"needs --tls-cert": {ClientCA: "a"},
	} {
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}
