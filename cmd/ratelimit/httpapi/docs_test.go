package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

var curlCommand = regexp.MustCompile(
	`^curl -i (-H "Authorization: Bearer \$TOKEN" )?(?:--json '(.*)' )?localhost:8080(/\S+)$`)

// TestDocsExamples runs the examples of docs/daemon.md in their order, with a clock that does not
// move, and compares the answers: the status, the headers that are shown, and the whole body.
func TestDocsExamples(t *testing.T) {
	page, err := os.ReadFile("../../../docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := os.ReadFile("../../../docs/limits-file.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, apitest.YAMLBlock.FindSubmatch(limits)[1], 0o644); err != nil {
		t.Fatal(err)
	}
	s := newScene(t)
	asked := make(map[string]bool)
	for _, block := range apitest.ConsoleBlock.FindAllStringSubmatch(string(page), -1) {
		for _, example := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			if args, ok := strings.CutPrefix(command, "ratelimit "); ok {
				args = strings.ReplaceAll(args, "limits.yaml", file)
				s.api = shownAPI(t, strings.Fields(args), s.store)
				continue
			}
			curl := curlCommand.FindStringSubmatch(command)
			if curl == nil {
				t.Fatalf("%q is not a command that this test knows", command)
			}
			if (curl[1] != "") != (Needs(curl[3]) == access.ToWrite) {
				t.Errorf("%q has a token, or should have one", command)
			}
			asked[curl[3]] = true
			s.checkExample(command, curl[3], curl[2], want)
		}
	}
	for path := range rightOf {
		if !asked[path] && !slices.Contains(
			[]string{"/v1/explain", "/v1/peek", "/v1/top-keys", // in TestRunbook
				"/healthz", "/readyz", "/v1/check", "/v1/openapi.yaml", "/json",
				"/healthcheck"}, path) {
			t.Errorf("%s has no example", path)
		}
	}
	for _, p := range []string{"invalid-request", "already-settled", "wrong-kind",
		"claims-not-together"} {
		heading := "\n### " + strings.ToUpper(p[:1]) + strings.ReplaceAll(p[1:], "-", " ") + "\n"
		if !strings.Contains(string(page), heading) {
			t.Errorf("the type %s has no section", p)
		}
	}
}

// shownAPI returns an API with the limits of the arguments of a command that is shown.
func shownAPI(t *testing.T, args []string, store ratelimit.Store) *API {
	t.Helper()
	var shown struct {
		Serve struct {
			Config string
			config.Flags
		} `cmd:""`
	}
	parser, err := kong.New(&shown)
	if err == nil {
		_, err = parser.Parse(args)
	}
	if err != nil {
		t.Fatal(err)
	}
	if shown.Serve.Config == "" {
		return flagsAPI(t, shown.Serve.Flags, store)
	}
	text, err := os.ReadFile(shown.Serve.Config)
	if err != nil {
		t.Fatal(err)
	}
	return fileAPI(t, string(text), store)
}

func (s *scene) checkExample(command, path, body, want string) {
	s.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	if n := len(s.ids); n > 0 {
		body = strings.ReplaceAll(body, "'$ID'", s.ids[n-1])
	}
	status, header, got := s.request(method, path, body)
	head, wantBody, ok := strings.Cut(want, "\n\n")
	shown := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	if line := fmt.Sprintf("HTTP/1.1 %d %s", status, http.StatusText(status)); !ok ||
		shown[0] != line {
		s.Errorf("%s\n%s, shown as\n%s\n%v", command, line, want, got)
		return
	}
	for _, line := range shown[1:] {
		name, value, _ := strings.Cut(line, ": ")
		if header.Get(name) != value {
			s.Errorf("%s\n%s is %q", command, line, header.Get(name))
		}
	}
	if _, ok := got["id"].(string); ok {
		got["id"] = "…"
	}
	var wanted map[string]any
	if strings.TrimSpace(wantBody) != "" {
		if err := json.Unmarshal([]byte(wantBody), &wanted); err != nil {
			s.Fatalf("%v: %s", err, wantBody)
		}
	}
	if wanted["limits"] == "…" && got["limits"] != nil {
		got["limits"] = "…"
	}
	if !reflect.DeepEqual(got, wanted) {
		text, _ := json.MarshalIndent(got, "", "  ")
		s.Errorf("%s\ngot  %s\nwant %s", command, text, wantBody)
	}
}
