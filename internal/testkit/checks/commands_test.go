package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf has, for each page with commands, the test that reads them from the page and runs them.
var testsOf = map[string]string{
	"README.md":                "TestReadme", // make test is what CI runs
	"docs/budgets.md":          "TestTokenBudget",
	"docs/caddy.md":            "TestCaddyPage",
	"docs/daemon.md":           "TestDocsExamples",
	"docs/deploy.md":           "TestCompose",
	"docs/envoy-ai-gateway.md": "TestGatewayManifests",
	"docs/gateway.md":          "TestGateway",
	"docs/limits-file.md":      "TestLimitsPage",
	"docs/limitador.md":        "TestLimitadorDocs",
	"docs/operations.md":       "TestRunbook",
	"docs/proxies.md":          "TestProxiesPage",
	"docs/quickstart.md":       "TestQuickstart",
	"docs/replay.md":           "TestReplayDocs",
	"docs/upstream.md":         "TestRegionalJobs",
	"docs/writing-a-store.md":  "TestServeTeamStore", // CI runs the benchmarks
}

var (
	commandBlock = regexp.MustCompile("(?ms)^ *```(?:sh|console)\n(.*?)^ *```")
	anyBlock     = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inlineSpan   = regexp.MustCompile("`([^`]+)`")
	variables    = regexp.MustCompile(`^(RATELIMIT_\w+=\S+ )+`)
	testRun      = regexp.MustCompile(`-(?:run|bench) '?\^?(\w+)`)
)

// TestCommandsAreTested checks that each page with commands has a test that reads them from it.
func TestCommandsAreTested(t *testing.T) {
	t.Chdir(root)
	sources := goSources(t)
	for _, page := range pages(t) {
		text := readFile(t, page)
		name, ok := testsOf[page]
		hasCommands := commandBlock.MatchString(text)
		if hasCommands && !ok {
			t.Errorf("%s has commands, and no test runs them: add one to testsOf", page)
		} else if ok && !hasCommands {
			t.Errorf("%s has no commands for %s", page, name)
		}
		if ok && !strings.Contains(sources, "\nfunc "+name+"(") {
			t.Errorf("there is no test %s", name)
		}
	}
}

// TestInlineCommands checks that the commands in the sentences of pages name targets of make, tests
// and programs that exist.
func TestInlineCommands(t *testing.T) {
	t.Chdir(root)
	makefile := readFile(t, "Makefile")
	found := 0
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" {
			continue
		}
		text := anyBlock.ReplaceAllString(readFile(t, page), "")
		for _, span := range inlineSpan.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(variables.ReplaceAllString(span[1], ""))
			if len(words) < 2 {
				continue
			}
			switch {
			case words[0] == "make":
				for _, target := range words[1:] {
					if !strings.Contains(target, "=") &&
						!strings.Contains(makefile, "\n"+target+": ") {
						t.Errorf("%s: the Makefile has no target %s", page, target)
					}
				}
			case words[0] == "go" && slices.Contains(words, "test"):
				checkTestCommand(t, page, words)
			case words[0] == "go" && slices.Contains(words, "run"):
				checkDirectories(t, page, words)
			default:
				continue
			}
			found++
		}
	}
	if found < 20 {
		t.Errorf("found only %d commands", found)
	}
}

// checkTestCommand checks that the directories of "go test" exist, and that one of them has the
// test.
func checkTestCommand(t *testing.T, page string, words []string) {
	t.Helper()
	var all strings.Builder
	for _, dir := range checkDirectories(t, page, words) {
		files, err := filepath.Glob(dir + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			all.WriteString("\n" + readFile(t, file))
		}
	}
	command := strings.Join(words, " ")
	for _, m := range testRun.FindAllStringSubmatch(command, -1) {
		name := regexp.MustCompile(`\nfunc (Test|Benchmark)?\w*` + m[1])
		if !name.MatchString(all.String()) {
			t.Errorf("%s: no package of %q has a test %s", page, command, m[1])
		}
	}
}

// checkDirectories checks that the directories that a command names exist, and returns them.
func checkDirectories(t *testing.T, page string, words []string) (dirs []string) {
	t.Helper()
	base := "."
	if i := slices.Index(words, "-C"); i >= 0 && i+1 < len(words) {
		base = words[i+1]
	}
	for _, word := range words {
		if !strings.HasPrefix(word, "./") || word == "./..." {
			continue
		}
		dir := filepath.Join(base, word)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			t.Errorf("%s: %q: %s is not a directory", page, strings.Join(words, " "), dir)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}
