package command

import (
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestProxiesPage runs the commands of docs/proxies.md, also without the flag that the page speaks
// of.
func TestProxiesPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/proxies.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := apitest.ConsoleBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks", len(blocks))
	}
	curl := regexp.MustCompile(`^curl -s -o /dev/null -w '%{http_code}\\n' ` +
		`-H 'X-Forwarded-For: (\S+)' 127.0.0.1:8080/v1/check$`)
	for _, without := range []string{"", " --trusted-proxy 127.0.0.1/32"} {
		url, log, last := "", new(apitest.Log), ""
		for _, example := range strings.Split("\n"+blocks[0][1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(example, "\n")
			if args, ok := strings.CutPrefix(line, "ratelimit serve "); ok {
				url, log, _ = start(t, strings.Fields(strings.Replace(args, without, "", 1))...)
				continue
			}
			client := curl.FindStringSubmatch(line)
			if client == nil {
				t.Fatalf("%q is not a command that this test knows", line)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/check", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Forwarded-For", client[1])
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			last = strconv.Itoa(res.StatusCode)
			if without == "" && last != strings.TrimSpace(want) {
				t.Errorf("%s: %s, want %s", line, last, want)
			}
		}
		if without != "" && (last != "429" || !strings.Contains(log.String(), `"entry":"client"`)) {
			t.Errorf("without the flag: %s: %s", last, log)
		}
	}
}
