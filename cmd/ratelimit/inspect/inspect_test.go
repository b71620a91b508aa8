package inspect

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

const limitsFile = `
limits:
- name: requests
  when: {tenant: "*"}
  key: [tenant]
  max: 1000/1m
  by: {entry: plan, pro: 2000/1m, "a\nb": 1/m}
  except:
  - {when: {tenant: acme, path: "/v1/*"}, max: 50000/1m}
  - {when: {tenant: staff}, max: unlimited}
  - {when: {tenant: banned}, max: 0}
- name: chat
  when: {path: /v1/chat*, domain: api}
  key: [tenant, user]
  max: 20/1m
  mode: shadow
- {name: month, max: 1000, algorithm: month}
- {name: uploads, key: [user], max: 5, algorithm: in-flight}
- {name: blocked, max: 1d, algorithm: block}
`

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a command, and returns what it prints.
func run(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var commands struct {
		Validate Validate `cmd:""`
		Explain  Explain  `cmd:""`
	}
	var b strings.Builder
	parser, err := kong.New(&commands, kong.Writers(&b, &b))
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(args)
	if err == nil {
		err = k.Run()
	}
	return b.String(), err
}

// TestValidateLocal: limits without a share, limits with a policy that local decisions replace, and
// local decisions of an unknown number of instances are warnings with their position.
func TestValidateLocal(t *testing.T) {
	const limits = `
limits:
- {name: enough, max: 4/1m, on_failure: closed}
- {name: few, max: 3/1m, by: {entry: plan, trial: 2/1m}}
- {name: trial, max: 9/1m, by: {entry: plan, trial: 2/1m, none: 0}}
- {name: blocked, max: 1s, algorithm: block}
`
	const noShare = "%s:%d:3: warning: none of 4 instances has a share of %q with %s: while the " +
		"store is unavailable, they decide no request for it\n"
	for name, tt := range map[string]struct {
		settings string
		want     func(file string) string
	}{
		"shares": {"on_failure: local\ninstances: 4", func(file string) string {
			return file + ":4:3: warning: \"enough\" has on_failure: closed, which counts only " +
				"where the service cannot decide locally\n" +
				fmt.Sprintf(noShare, file, 5, "few", "3/1m0s (max)") +
				fmt.Sprintf(noShare, file, 6, "trial", "2/1m0s (by plan=trial)")
		}},
		"not local": {"on_failure: closed\ninstances: 4", func(string) string { return "" }},
		"unknown": {"on_failure: local", func(file string) string {
			return file + ":1:13: warning: on_failure: local needs instances, the number of " +
				"processes: the service does not start without it or --instances\n"
		}},
	} {
		file := write(t, "limits.yaml", tt.settings+limits)
		want := tt.want(file) + file + ": 4 limits\n"
		if stdout, err := run(t, "validate", file); stdout != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, stdout, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	good := write(t, "good.yaml", limitsFile)
	one := write(t, "a,b.yaml", "limits: [{name: a, max: 1/m}]")
	bad := write(t, "bad.yaml", "limits:\n- {name: a}\n- {max: 1/m}\n")
	stdout, err := run(t, "validate", good, one)
	warning := good + ":18:3: warning: \"uploads\" limits calls in flight: it does not apply at " +
		"/v1/check and to calls of Envoy, which do not say when a call ends\n"
	if want := warning + good + ": 5 limits\n" + one + ": 1 limit\n"; stdout != want || err != nil {
		t.Errorf("got %q, %v, want %q", stdout, err, want)
	}
	stdout, err = run(t, "validate", bad, one)
	want := bad + ":2:3: the limit has no max\n" + bad + ":3:3: the limit has no name\n" + one +
		": 1 limit\n"
	if stdout != want || err == nil || err.Error() != "2 problems" {
		t.Errorf("got %q, %v, want %q", stdout, err, want)
	}
	stdout, err = run(t, "validate", "--json", bad, one)
	var results []checked
	if jsonErr := json.Unmarshal([]byte(stdout), &results); jsonErr != nil {
		t.Fatal(jsonErr)
	}
	wantResults := []checked{
		{bad, 0, []problem{
			{bad, 2, 3, "the limit has no max"}, {bad, 3, 3, "the limit has no name"},
		}, []problem{}},
		{one, 1, []problem{}, []problem{}},
	}
	if !reflect.DeepEqual(results, wantResults) || err == nil {
		t.Errorf("got %+v, %v, want %+v", results, err, wantResults)
	}
}

// TestMisspeltEntry: an entry of when that is nearly one of key is a warning. Other names, and both
// names in one place, are none.
func TestMisspeltEntry(t *testing.T) {
	path := write(t, "limits.yaml", `
limits:
- {name: a, when: {tenan: "*"}, key: [tenant], max: 1/m}
- {name: b, when: {tenants: "*", tenant: "*"}, key: [tenant], max: 1/m}
- {name: c, when: {path: /v1*}, key: [tenant, user, tenants], max: 1/m}
- {name: d, when: {ip4: "*"}, key: [ip6], max: 1/m}
`)
	stdout, err := run(t, "validate", path)
	want := path + ":3:3: warning: \"a\" needs the entries \"tenan\" and \"tenant\": is one of " +
		"them misspelt?\n" + path + ": 4 limits\n"
	if stdout != want || err != nil {
		t.Errorf("got %v\n%s, want\n%s", err, stdout, want)
	}
}

// TestUnmatched: what no request of a proxy has is a warning, and half a network an error.
func TestUnmatched(t *testing.T) {
	path := write(t, "limits.yaml", "limits:\n- {name: a, when: {method: post}, max: 1/m}\n"+
		"- {name: b, max: 1/m, except: [{when: {path: api/*}, max: 2/m}]}\n")
	stdout, err := run(t, "validate", path)
	want := path + ":2:3: warning: \"a\" is for method=post, which no request at /v1/check has: " +
		"methods are in upper case: write POST\n" +
		path + ":3:32: warning: \"b\" is for path=api/*, which no request at /v1/check has: " +
		"a path begins with a slash: write /api/*\n" + path + ": 2 limits\n"
	if stdout != want || err != nil {
		t.Errorf("got %v\n%s, want\n%s", err, stdout, want)
	}
	path = write(t, "limits.yaml", "limits:\n- {name: a, when: {client: 10.0.0.1/8}, max: 1/m}\n")
	stdout, err = run(t, "validate", path)
	want = path + ":2:28: write the network as 10.0.0.0/8\n"
	if stdout != want || err == nil {
		t.Errorf("got %v\n%s, want\n%s", err, stdout, want)
	}
}

func TestExplain(t *testing.T) {
	path := write(t, "limits.yaml", limitsFile)
	tests := []struct{ args, want string }{
		{"tenant=acme path=/v1/chat,x domain=api user=a=b", `
LIMIT          RATE        WHY                             KEY
requests       50000/1m0s  except tenant=acme, path=/v1/*  acme
chat (shadow)  20/1m0s     max                             acme/a=b
month          1000/month  max                             %*
uploads        5           max                             a=b
blocked        24h0m0s     max                             %*
`},
		{"tenant=acme path=/x/..%2fv1/chat domain=api user=b", `
LIMIT          RATE        WHY  KEY
requests       1000/1m0s   max  acme
chat (shadow)  20/1m0s     max  acme/b
month          1000/month  max  %*
uploads        5           max  b
blocked        24h0m0s     max  %*
`},
		{"tenant=a/b plan=pro path=/ --domain=api", `
LIMIT     RATE        WHY          KEY
requests  2000/1m0s   by plan=pro  a%2Fb
month     1000/month  max          %*
blocked   24h0m0s     max          %*

DOES NOT APPLY  BECAUSE
chat            path is /, not /v1/chat*
uploads         user is missing, which is in the key
`},
		{"tenant=staff path=/v1/chat domain= user= --domain=api", `
LIMIT     RATE        WHY                  KEY
requests  unlimited   except tenant=staff  staff
month     1000/month  max                  %*
uploads   5           max                  %
blocked   24h0m0s     max                  %*

DOES NOT APPLY  BECAUSE
chat            domain is "", not api
`},
	}
	for _, test := range tests {
		stdout, err := run(t, append([]string{"explain", path}, strings.Fields(test.args)...)...)
		if err != nil || stdout != test.want[1:] {
			t.Errorf("%s: %v\n%s", test.args, err, stdout)
		}
	}
	for want, args := range map[string][]string{"name=value": {path, "acme"},
		`"=acme"`: {path, "=acme"}, "no such file": {path + "x"}} {
		if stdout, err := run(t, append([]string{"explain"}, args...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s: %s", args, err, want, stdout)
		}
	}
}

func TestExplainAsJSON(t *testing.T) {
	path := write(t, "limits.yaml", limitsFile)
	stdout, err := run(t, "explain", "--json", path, "tenant=banned", "plan=a\nb", "path=/v1/chat",
		"domain=api", "user=u")
	if err != nil {
		t.Fatal(err)
	}
	var got Explanation
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	want := Explanation{Applies: []limitMatch{
		{"requests", "0", "except tenant=banned", "banned", false, false, "", path + ":3:3", "",
			nil},
		{"chat", "20/1m0s", "max", "banned/u", true, false, "", path + ":12:3", "", nil},
		{"month", "1000/month", "max", "%*", false, false, "", path + ":17:3", "", nil},
		{"uploads", "5", "max", "u", false, false, "", path + ":18:3", "", nil},
		{"blocked", "24h0m0s", "max", "%*", false, false, "", path + ":19:3", "", nil},
	}, Others: []other{}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	stdout, err = run(t, "explain", path, "tenant=x", "plan=a\nb")
	if err != nil || !strings.Contains(stdout, "\nrequests  1/1m0s      by plan=\"a\\nb\"  x\n") {
		t.Errorf("got %v\n%s", err, stdout)
	}
}

func TestFilesOfEnvoy(t *testing.T) {
	path := write(t, "edge.yaml", `
domain: edge
descriptors:
- key: tenant
  detailed_metric: true
  rate_limit: {unit: minute, requests_per_unit: 5}
- key: path
  value: /v1
  rate_limit: {unit: hour, requests_per_unit: 9}
`)
	stdout, err := run(t, "validate", path)
	if !strings.HasPrefix(stdout, path+":5:20: warning: ignored: ") ||
		!strings.HasSuffix(stdout, "\n"+path+": 2 limits\n") || err != nil {
		t.Errorf("got %v\n%s", err, stdout)
	}
	stdout, err = run(t, "explain", path, "tenant=a/b", "--domain=edge")
	const want = `LIMIT        RATE    WHY  KEY
edge|tenant  5/1m0s  max  a%2Fb

DOES NOT APPLY  BECAUSE
edge|path_/v1   the entries lead to another limit of the domain, or to none
`
	if stdout != want || err != nil {
		t.Errorf("got %v\n%s", err, stdout)
	}
	stdout, err = run(t, "explain", path, "tenant=a/b")
	if !strings.HasPrefix(stdout, "No limit applies.\n") ||
		!strings.Contains(stdout, "\nedge|tenant     it is of the domain \"edge\": name it with "+
			"--domain\n") || err != nil {
		t.Errorf("got %v\n%s", err, stdout)
	}
	bad := write(t, "bad.yaml", "domain: edge\ndescriptors: [{key: a, value: b, limit: 1}]\n")
	stdout, err = run(t, "validate", bad)
	if !strings.HasPrefix(stdout, bad+":2:34: ") || err == nil {
		t.Errorf("got %v\n%s", err, stdout)
	}
}

// TestValidateAgainst: what would count from zero is a warning, and a file that cannot be read an
// error.
func TestValidateAgainst(t *testing.T) {
	old := write(t, "old.yaml", "store: redis://a\nlimits:\n"+
		"- {name: a, key: [x], max: 5/1h}\n- {name: b, max: 5/1h}\n- {name: c, max: 5/1h}\n"+
		"- {name: same, max: 5/1h}\n- {name: left, max: 5/1h}\n")
	file := write(t, "new.yaml", "store: redis://a?prefix=x\nlimits:\n"+
		"- {name: a, key: [y], max: 5/1h}\n- {name: b, max: 5/1h, holds: 1m}\n"+
		"- {name: c, max: 5/1h, algorithm: bucket}\n- {name: same, max: 9/1d, warn: 80%}\n"+
		"- {name: renamed, max: 5/1h}\n")
	warn := func(line int, name, why string) string {
		return fmt.Sprintf("%s:%d:3: warning: %q counts from zero: %s\n", file, line, name, why)
	}
	want := file + ":1:8: warning: store is another one, or has another prefix, tag or " +
		"table: unless the counts are there too, all limits count from zero\n" +
		warn(3, "a", "its key is [y], not [x]") + warn(4, "b", "it has holds, and had none") +
		warn(5, "c", "its algorithm is bucket, not log") +
		warn(7, "renamed",
			"it is new, and others have left: if it is one of them, its name was left") +
		file + ": 5 limits\n"
	if stdout, err := run(t, "validate", file, "--against="+old); stdout != want || err != nil {
		t.Errorf("got %s, %v, want %s", stdout, err, want)
	}
	stdout, err := run(t, "validate", "--json", old, "--against", file)
	var results []checked
	if jsonErr := json.Unmarshal([]byte(stdout), &results); jsonErr != nil || err != nil ||
		len(results) != 1 || len(results[0].Warnings) != 5 {
		t.Errorf("%v, %v: %s", jsonErr, err, stdout)
	}
	if _, err := run(t, "validate", file, "--against=missing.yaml"); err == nil ||
		!strings.Contains(err.Error(), "missing.yaml: no such file") {
		t.Errorf("the error of a file that is not there is %v", err)
	}
}

// TestValidateWithoutLimits: a file that admits everything is a warning, at the file or its domain.
func TestValidateWithoutLimits(t *testing.T) {
	for text, at := range map[string]string{"limits: []\n": "", "{}\n": "", "store: memory\n": "",
		"domain: d\n": ":1:9", "domain: d\ndescriptors: [{key: a}]\n": ":1:9"} {
		file := write(t, "limits.yaml", text)
		stdout, err := run(t, "validate", file)
		if !strings.HasPrefix(stdout, file+at+": warning: ") || err != nil ||
			!strings.HasSuffix(stdout, "every request is admitted\n"+file+": 0 limits\n") {
			t.Errorf("%q: got %q, %v", text, stdout, err)
		}
	}
}

// TestExplainDomain: the reason names the domain as it was given, by the flag or an entry, and the
// flag where it is missing.
func TestExplainDomain(t *testing.T) {
	path := write(t, "limits.yaml", `
limits:
- {name: a, when: {domain: edge}, max: 1/1m}
- {name: b, key: [tenant], max: 1/1m, by: {entry: domain, edge: 2/1m}}
- {name: c, key: [tenant], max: 1/1m, except: [{when: {tenant: x, domain: edge}, max: 3/1m}]}
`)
	for args, want := range map[string][]string{
		"tenant=x --domain=edge": {"by --domain=edge", "except tenant=x, --domain=edge"},
		"tenant=x domain=edge":   {"by domain=edge", "except tenant=x, domain=edge"},
		"tenant=x domain=edge --domain=other": {
			"by domain=edge", "except tenant=x, domain=edge"},
		"tenant=x": {"domain is missing: name it with --domain"},
	} {
		stdout, err := run(t, append([]string{"explain", path}, strings.Fields(args)...)...)
		for _, part := range want {
			if err != nil || !strings.Contains(stdout, " "+part+" ") &&
				!strings.Contains(stdout, " "+part+"\n") {
				t.Errorf("%s: %v, no %q in\n%s", args, err, part, stdout)
			}
		}
	}
}

// TestStates: of a service there are states, and under a block whether the key is blocked.
func TestStates(t *testing.T) {
	e := Explanation{Applies: []limitMatch{
		{Limit: "units", State: &State{Limit: 9, Remaining: 3, RetryAfterMS: 1500}, KeyHash: "h"},
		{Limit: "free", State: &State{Limit: 1000, Remaining: 1000, Block: true}},
		{Limit: "blocked", State: &State{Limit: 1000, RetryAfterMS: 500, Block: true}},
		{Limit: "unknown"},
	}}
	var b strings.Builder
	if err := new(Explain).WriteText(&b, e); err != nil {
		t.Fatal(err)
	}
	const want = `
LIMIT    LEFT         OF  NEXT UNIT AFTER  KEY HASH
units    3            9   1.5s             h
free     not blocked      0s               
blocked  blocked          500ms            
unknown                                    
`
	if !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %s", b.String())
	}
}
