package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"regexp"
	"testing"
)

// TestPage: the file that docs/daemon.md shows is right, and its certificates are found.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^```yaml\n(anyone:.*?)^```$").FindStringSubmatch(string(page))
	table := &Table{File: fileOf(t, block[1])}
	for want, got := range map[string]*Caller{
		"anyone : decide, settle []":            table.Find("", nil),
		"token billing: settle, write [tokens]": table.Find("a-token-of-20-bytes-or-more", nil),
		"certificate gateway: decide, settle []": table.Find("", &x509.Certificate{
			Subject: pkix.Name{CommonName: "gateway", Organization: []string{"Acme"}}}),
	} {
		if got.says() != want {
			t.Errorf("got %s, want %s", got.says(), want)
		}
	}
}
