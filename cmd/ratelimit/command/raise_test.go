package command

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// raiseFiles writes limits that include raises.yaml, which has a text or is not there, and returns
// the paths of both.
func raiseFiles(t *testing.T, text string) (limits, raises string) {
	t.Helper()
	limits = apitest.ConfigFile(t, "include: raise*.yaml\nlimits:\n"+
		"- {name: units, key: [tenant], max: 2/1h}\n- {name: quota, key: [tenant], max: 9, "+
		"algorithm: month}\n")
	raises = filepath.Join(filepath.Dir(limits), "raises.yaml")
	if text != "" {
		apitest.WriteFile(t, raises, text)
	}
	return limits, raises
}

// TestRaise raises a limit of a service for a time, and ends that.
func TestRaise(t *testing.T) {
	limits, raises := raiseFiles(t, "")
	dir := t.TempDir()
	trails := [2]string{filepath.Join(dir, "service"), filepath.Join(dir, "command")}
	url, log, stop := start(t, "--config="+limits, "--audit="+trails[0])
	t.Setenv("RATELIMIT_URL", url)
	loads := strings.Count(log.String(), "the configuration is loaded")
	raise := func(args ...string) {
		t.Helper()
		args = append([]string{"raise", "--file=" + raises, "--config=" + limits, "--limit=units"},
			append(args, "--audit="+trails[1])...)
		code, stdout, stderr := command(t, append(args, "tenant=acme")...)
		if code != exitOK || stderr != "" {
			t.Fatalf("%s: code %d: %s", args, code, stderr)
		}
		want := "tenant=acme until"
		if args[4] == "--end" {
			want = "ended: units unlimited except tenant=acme until 2099"
		}
		if !strings.Contains(stdout, want) {
			t.Errorf("%s prints %s", args, stdout)
		}
		for loads++; strings.Count(log.String(), "the configuration is loaded") < loads; {
			runtime.Gosched()
		}
	}
	take := func(want int) {
		t.Helper()
		if code, stdout, stderr := command(t, "take", "tenant=acme"); code != want {
			t.Errorf("code %d, want %d: %s%s", code, want, stdout, stderr)
		}
	}
	take(exitOK)
	take(exitOK)
	take(exitRefused)
	raise("--max=3/1h", "--for=7d")
	take(exitOK) // what was used counts
	take(exitRefused)
	raise("--max=unlimited", "--until=2099-12-04T18:00:00+01:00")
	take(exitOK)
	const why = "except tenant=acme until 2099-12-04T18:00:00+01:00"
	for _, from := range []string{limits, url} {
		_, stdout, _ := command(t, "explain", from, "tenant=acme")
		if !strings.Contains(stdout, why) {
			t.Errorf("explain %s prints %s", from, stdout)
		}
	}
	_, page := get(t, url+"/dashboard/snapshot")
	if !strings.Contains(page, "units unlimited "+why) {
		t.Errorf("the page shows %s", page)
	}
	raise("--end")
	take(exitRefused)
	for _, want := range []string{"rates begin that end by themselves",
		`rates end before their time","count":1,"rates":["units unlimited ` + why} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s: %s", want, log)
		}
	}
	stop()
	actions := [2]string{} // of each trail
	for i, path := range trails {
		for _, e := range events(t, path) {
			actions[i] += e.Action + " "
			kind := []string{"file", "user"}[i]
			if e.Actor.Kind != kind || e.Actor.Name == "" || e.Outcome != audit.Done ||
				e.Changes[0].Limit != "units" ||
				!strings.Contains(e.Changes[0].Rate, "tenant=acme") {
				t.Errorf("%+v", e)
			}
		}
	}
	want := [2]string{"raise raise raise_ends raise_ends ", "raise raise raise_ends "}
	if actions != want {
		t.Errorf("the audits have %q, want %q", actions, want)
	}
}

// TestRaiseKeepsTheFile: other exceptions, limits, comments, the mode and a link stay; what is over
// goes.
func TestRaiseKeepsTheFile(t *testing.T) {
	_, raises := raiseFiles(t, `# By billing.

limits:
  - {name: more, max: 1/1m} # a limit
except:
  # for good
  - {limit: units, when: {tenant: acme}, max: 3/1h}
  - {limit: units, when: {tenant: gone}, max: 3/1h, until: 2020-12-04T18:00:00Z}
  - {limit: units, when: {tenant: acme, path: /x*}, max: 4/1h, until: 2099-12-04T18:00:00Z}
  - {limit: quota, when: {tenant: acme}, max: 4, until: 2099-12-04T18:00:00Z}
  - {limit: units, when: {path: /y, tenant: "007"}, max: 5/1h, until: 2099-12-04T18:00:00Z}
  - {limit: units, when: {tenant: {file: partners.txt}}, max: 5/1h, until: 2099-12-04T18:00:00Z}
`)
	if err := os.Chmod(raises, 0o640); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(raises, link); err != nil {
		t.Fatal(err)
	}
	for _, entries := range [][]string{{"tenant=globex"}, {"tenant=007", "path=/y"},
		{"tenant=globex"}} {
		args := append([]string{"raise", "--file=" + link, "--limit=units", "--max=6/1h",
			"--until=2098-12-04T18:00:00+01:00"}, entries...)
		if code, _, stderr := command(t, args...); code != exitOK {
			t.Fatalf("code %d: %s", code, stderr)
		}
	}
	want := `# By billing.

limits:
  - {name: more, max: 1/1m} # a limit
except:
  - {limit: units, when: {tenant: globex}, max: 6/1h, until: '2098-12-04T18:00:00+01:00'}
  - {limit: units, when: {tenant: "007", path: /y}, max: 6/1h, until: '2098-12-04T18:00:00+01:00'}
  # for good
  - {limit: units, when: {tenant: acme}, max: 3/1h}
  - {limit: units, when: {tenant: acme, path: /x*}, max: 4/1h, until: '2099-12-04T18:00:00Z'}
  - {limit: quota, when: {tenant: acme}, max: 4, until: '2099-12-04T18:00:00Z'}
  - {limit: units, when: {tenant: {file: partners.txt}}, max: 5/1h, until: '2099-12-04T18:00:00Z'}
`
	got, err := os.ReadFile(raises)
	if err != nil || string(got) != want {
		t.Errorf("%v, the file has\n%s\nwant\n%s", err, got, want)
	}
	info, err := os.Lstat(raises)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if names, err := os.ReadDir(filepath.Dir(raises)); err != nil || len(names) != 2 {
		t.Errorf("%v, the folder has %v", err, names)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
}

// TestRaiseRefused: what is wrong changes nothing.
func TestRaiseRefused(t *testing.T) {
	limits, raises := raiseFiles(t,
		"except: [{limit: units, when: {tenant: acme, user: [a, b]}, max: 3/1h, "+
			"until: 2100-01-01T00:00:00Z}]\n")
	before, err := os.ReadFile(raises)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(filepath.Dir(limits), "other.yaml")
	apitest.WriteFile(t, filepath.Join(filepath.Dir(limits), "wrong.yaml"), "x: y\n")
	const units, five, until = "--limit=units", "--max=5/1h", "--until=2099-01-01T00:00:00Z"
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{units, five}, exitUsage, "either --until or --for"},
		{[]string{units, five, until, "--for=1h"}, exitUsage, "either --until"},
		{[]string{units, until}, exitUsage, "--max or --end is required"},
		{[]string{units, "--end", until}, exitUsage, "--end is without"},
		{[]string{five, until}, exitUsage, "--limit"},
		{[]string{units, five, "--until=tomorrow"}, exitUsage, "--until is a time"},
		{[]string{units, five, "--until=2020-01-01T00:00:00Z"}, exitUsage, "is over"},
		{[]string{units, five, "--for=-1h"}, exitUsage, "--for is a duration"},
		{[]string{units, "--max=many", "--for=1h"}, exitUsage, "--max is such as 5000/1m"},
		{[]string{units, five, until, "tenant=b"}, exitUsage, `"tenant" is there twice`},
		{[]string{"--limit=unit", five, until}, exitError,
			`nothing is written: ` + raises + `:1:18: no limit has the name "unit"`},
		{[]string{"--limit=quota", five, until}, exitError, "max of month is an integer"},
		{[]string{units, five, until, "user=b*c"}, exitError, "a * can only be"},
		{[]string{units, five, "--until=2101-01-01T00:00:00Z"}, exitError,
			"this exception is never reached"}, // that of the file, from now on
		{[]string{units, "--end"}, exitError, "has no exception of \"units\""},
		{[]string{units, five, until, "--file=" + other}, exitError,
			limits + " does not include " + other},
		{[]string{units, five, until, "--file=" + limits}, exitError, `unknown key "include"`},
		{[]string{units, five, until, "--file=" + filepath.Dir(other)}, exitError,
			"not a regular file"},
		{[]string{units, five, until, "--file=" + other + "/x"}, exitError, "no such"},
		{[]string{units, five, until, "--file=" +
			filepath.Join(filepath.Dir(limits), "wrong.yaml")}, exitError, "none of its keys"},
	} {
		args := append([]string{"raise", "--file=" + raises, "--config=" + limits}, tt.args...)
		code, _, stderr := command(t, append(args, "tenant=acme")...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: code %d, %s, want %d and %s", tt.args, code, stderr, tt.code, tt.want)
		}
		if after, err := os.ReadFile(raises); err != nil || string(after) != string(before) {
			t.Fatalf("%s: %v, the file has become\n%s", tt.args, err, after)
		}
		if _, err := os.Stat(other); err == nil {
			t.Fatalf("%s: the other file is there", tt.args)
		}
	}
}

// TestRaiseHides: a wider exception that ends later replaces what it hides, and no other.
func TestRaiseHides(t *testing.T) {
	limits, raises := raiseFiles(t, "")
	for _, args := range [][]string{
		{"--for=1h", "tenant=acme", "path=/a"}, {"--for=9h", "tenant=acme", "path=/b"},
		{"--for=1h", "tenant=other", "path=/a"}, {"--for=2h", "tenant=acme"},
	} {
		args = append([]string{"raise", "--file=" + raises, "--config=" + limits, "--limit=units",
			"--max=5/1h"}, args...)
		if code, _, stderr := command(t, args...); code != exitOK {
			t.Fatalf("%s: %s", args, stderr)
		}
	}
	text, err := os.ReadFile(raises)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "until:"); n != 3 ||
		!strings.Contains(string(text), "/b") || !strings.Contains(string(text), "other") {
		t.Errorf("%d exceptions: %s", n, text)
	}
}

// TestRaisesAtOnce: of commands at once none is lost.
func TestRaisesAtOnce(t *testing.T) {
	limits, raises := raiseFiles(t, "")
	const many = 20
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			code, _, stderr := command(t, "raise", "--file="+raises, "--config="+limits,
				"--limit=units", "--max=5/1h", "--for=1h", fmt.Sprint("tenant=t", i))
			if code != exitOK {
				t.Errorf("code %d: %s", code, stderr)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(raises)
	if n := strings.Count(string(text), "limit: units"); err != nil || n != many {
		t.Errorf("%v, the file has %d exceptions of %d:\n%s", err, n, many, text)
	}
}

// TestValuesReload: a service loads again when a file of values changes.
func TestValuesReload(t *testing.T) {
	limits := apitest.ConfigFile(t, "limits:\n- name: units\n  key: [tenant]\n  max: 0\n"+
		"  except: [{when: {tenant: {file: partners.txt}}, max: unlimited}]\n")
	partners := apitest.WriteFile(t, filepath.Join(filepath.Dir(limits), "partners.txt"), "acme\n")
	url, log, _ := start(t, "--config="+limits)
	t.Setenv("RATELIMIT_URL", url)
	want := func(tenant string, code int) {
		t.Helper()
		if got, stdout, stderr := command(t, "take", "tenant="+tenant); got != code {
			t.Errorf("%s: code %d, want %d: %s%s", tenant, got, code, stdout, stderr)
		}
	}
	wait := func(text string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), text); {
			if runtime.Gosched(); time.Now().After(deadline) {
				t.Fatalf("the log has no %s: %s", text, log)
			}
		}
	}
	want("acme", exitOK)
	want("globex", exitRefused)
	loads := strings.Count(log.String(), "the configuration is loaded")
	apitest.WriteFile(t, partners, "globex\n")
	for strings.Count(log.String(), "the configuration is loaded") == loads {
		runtime.Gosched()
	}
	want("acme", exitRefused)
	want("globex", exitOK)
	if err := os.Remove(partners); err != nil {
		t.Fatal(err)
	}
	wait("file: " + partners + ": no such file or directory")
	want("globex", exitOK)
}

// TestRaisePage runs the command of docs/limits-file.md beside the files of its section on included
// files, in a later year.
func TestRaisePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/limits-file.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### For a time\n")
	example := string(apitest.ConsoleBlock.FindSubmatch([]byte(section))[1])
	example = strings.ReplaceAll(example, "2026-", "2099-")
	_, section, _ = strings.Cut(section, "\n## Included files\n")
	files := apitest.YAMLBlock.FindAllStringSubmatch(section, -1)
	t.Chdir(t.TempDir())
	if err := os.Mkdir("tenants", 0o755); err != nil {
		t.Fatal(err)
	}
	apitest.WriteFile(t, "limits.yaml", files[0][1])
	apitest.WriteFile(t, "tenants/acme.yaml", files[1][1])
	line, want, _ := strings.Cut(example, "\n")
	args := strings.Fields(strings.TrimPrefix(line, "$ ratelimit "))
	code, stdout, stderr := command(t, args...)
	if code != exitOK || stdout != want {
		t.Errorf("code %d, it prints\n%s%s, want\n%s", code, stdout, stderr, want)
	}
	_, stdout, _ = command(t, "explain", "limits.yaml", "tenant=acme")
	if !strings.Contains(stdout, "units  9000/1m0s  except tenant=acme until 2099-") {
		t.Errorf("explain prints\n%s", stdout)
	}
}
