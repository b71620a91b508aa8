package access

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const writer = "a-token-to-write-with"

// fileOf returns a file with a text, which must be right.
func fileOf(t *testing.T, text string) *File {
	t.Helper()
	f := NewFile(apitest.WriteFile(t, filepath.Join(t.TempDir(), "access.yaml"), text))
	if err := f.Read(); err != nil {
		t.Fatal(err)
	}
	return f
}

// says returns who c is and what c may do.
func (c *Caller) says() string {
	return strings.Join(strings.Fields(fmt.Sprint(c.Kind, " ", c.Name, ": ", c.may, " ",
		c.limits)), " ")
}

// TestFile: tokens and certificates have the names and rights of the file, and no others; everyone
// else those of anyone.
func TestFile(t *testing.T) {
	sum := sha256.Sum256([]byte(writer))
	table := &Table{File: fileOf(t, `
tokens:
  - {name: billing, sha256: "`+hex.EncodeToString(sum[:])+`", may: [write, read], limits: [units]}
  - {name: ann, token: `+apitest.Token+`, may: [decide, settle, read, write]}
certificates:
  - {name: gateway, subject: "CN=gateway,O=Acme", may: [decide]}
  - {name: spiffe, san: "spiffe://acme/jobs", may: [settle], limits: [a, b]}
  - {name: host, san: jobs.acme.example, may: [read]}
  - {name: address, san: 10.0.0.1, may: [read]}
`)}
	uri, err := url.Parse("spiffe://acme/jobs")
	if err != nil {
		t.Fatal(err)
	}
	gateway := &x509.Certificate{Subject: pkix.Name{CommonName: "gateway",
		Organization: []string{"Acme"}}}
	for _, tt := range []struct {
		token       string
		certificate *x509.Certificate
		want        string
	}{
		{"", nil, "anyone : decide, settle []"},
		{"a-token-of-nobody", nil, "unknown : decide, settle []"},
		{writer, nil, "token billing: read, write [units]"},
		{apitest.Token, nil, "token ann: decide, settle, read, write []"},
		{"", gateway, "certificate gateway: decide []"},
		{"a-token-of-nobody", gateway, "certificate gateway: decide []"},
		{writer, gateway, "token billing: read, write [units]"},
		{"", &x509.Certificate{Subject: pkix.Name{CommonName: "gateway"}},
			"certificate CN=gateway: decide, settle []"},
		{"", &x509.Certificate{URIs: []*url.URL{uri}}, "certificate spiffe: settle [a b]"},
		{"", &x509.Certificate{DNSNames: []string{"jobs.acme.example"}},
			"certificate host: read []"},
		{"", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
			"certificate address: read []"},
	} {
		if got := table.Find(tt.token, tt.certificate).says(); got != tt.want {
			t.Errorf("%q with %v is %q, want %q", tt.token, tt.certificate, got, tt.want)
		}
	}
	if !table.HasWriter() {
		t.Error("no credential writes")
	}
	billing := table.Find(writer, nil)
	if billing.Only() == nil || billing.MayUse("other") || !billing.MayUse("units") ||
		table.Find(apitest.Token, nil).Only() != nil {
		t.Error("limits are not those of the file")
	}
}

// TestAnyone: a file says what everyone may do, and without one reading is free unless there are
// tokens for it.
func TestAnyone(t *testing.T) {
	for _, tt := range []struct {
		table *Table
		want  string
	}{
		{&Table{}, "anyone : decide, settle, read []"},
		{&Table{Readers: NewTokens("", "", false)}, "anyone : decide, settle []"},
		{&Table{File: fileOf(t, "{}")}, "anyone : decide, settle []"},
		{&Table{File: fileOf(t, "anyone: []")}, "anyone : []"},
		{&Table{File: fileOf(t, "anyone: [read, decide]")}, "anyone : decide, read []"},
	} {
		if got := tt.table.Find("", nil).says(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		if tt.table.HasWriter() {
			t.Error("a credential writes")
		}
	}
}

// TestFileProblems: each problem has its line, and none quotes what may be a secret, here $.
func TestFileProblems(t *testing.T) {
	const secret = "a-secret-token-in-a-wrong-place"
	for _, tt := range [][2]string{
		{"$", ":1:1: the file is a map"},
		{"$: 1", ":1:1: the file has an unknown key; the keys are anyone, tokens"},
		{"tokens: $", ":1:9: tokens is a list of at least one element"},
		{"tokens: []", ":1:9: tokens is a list of at least one element"},
		{"tokens: [$]", ":1:10: a token is a map"},
		{"tokens: [{$}]", "a token has an unknown key"},
		{"tokens:\n- {$: 1, $: 2}", ":2:40: a token has a key twice"},
		{"tokens: [&$ {}]", "anchors and aliases are not supported"},
		{"\tx", ":1:1: a tab"},
		{"anyone: [$]", ":1:10: anyone has one of decide, settle, read, write in each place"},
		{"anyone: [write]", ":1:9: anyone may not write"},
		{"anyone: {}", ":1:9: anyone is a list"},
		{"tokens: [{name: a, may: [read]}]", ":1:10: a token has either sha256 or token"},
		{"tokens: [{name: a, may: [read], token: short}]", ":1:40: this is a token of less than"},
		{"tokens: [{name: a, may: [read], sha256: $}]", ":1:41: sha256 is the hash"},
		{"tokens: [{name: a, may: [read], sha256: 12}]", ":1:41: sha256 is a text"},
		{"tokens: [{may: [read], token: $}]", ":1:10: a token has a name"},
		{"tokens: [{name: a b, may: [read], token: $}]", ":1:17: this is a name with a space"},
		{"tokens: [{name: a, token: $}]", ":1:10: a token has a list may"},
		{"tokens: [{name: a, may: [], token: $}]", ":1:25: may is a list of at least"},
		{"tokens: [{name: a, may: [read], limits: [], token: $}]", ":1:41: limits is a list of"},
		{"tokens: [{name: a, may: [read], limits: [1], token: $}]", ":1:42: the name of a limit"},
		{"tokens:\n- {name: a, may: [read], token: $}\n- {name: a, may: [read], token: x$}",
			":3:10: another credential has this name"},
		{"tokens:\n- {name: a, may: [read], token: $}\n- {name: b, may: [read], token: $}",
			":3:3: this token is in the file already"},
		{"certificates: [{name: a, may: [read]}]", ":1:16: a certificate has either"},
		{"certificates: [{name: a, may: [read], subject: x, san: y}]",
			":1:16: a certificate has either"},
		{"certificates:\n- {name: a, may: [read], san: y}\n- {name: b, may: [read], san: y}",
			":3:3: this certificate is in the file already"},
	} {
		text := strings.ReplaceAll(tt[0], "$", secret)
		f := NewFile(apitest.WriteFile(t, filepath.Join(t.TempDir(), "access.yaml"), text))
		err := f.Read()
		if err == nil || !strings.Contains(err.Error(), tt[1]) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q", text, err, tt[1])
		}
		if f.current.Load() != nil {
			t.Errorf("%s is in force", text)
		}
	}
}
