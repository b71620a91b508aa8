package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

var (
	tableField = regexp.MustCompile("(?m)^\\| ((?:`\\w+`(?:, )?)+) \\|")
	jsonBlock  = regexp.MustCompile("(?ms)^```json\n(.*?)^```$")
)

// fieldsOf returns the names of the fields of a struct in JSON.
func fieldsOf(of any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// TestAuditPage: the page names each field of an event, in its order, and its example is what the
// request leaves.
func TestAuditPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range tableField.FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(strings.ReplaceAll(m[1], "`", ""), ", ") {
			named = append(named, name)
		}
	}
	want := slices.Concat(fieldsOf(audit.Event{}), fieldsOf(audit.Change{}))
	slices.Sort(named)
	if slices.Sort(want); !slices.Equal(named, want) {
		t.Errorf("the page names %v, want %v", named, want)
	}

	text := jsonBlock.FindStringSubmatch(string(page))[1]
	shown := filepath.Join(t.TempDir(), "shown.jsonl")
	apitest.WriteFile(t, shown, text)
	example := events(t, shown)[0]
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	base, _, stop := start(t, "--limit=tokens=10000/1m", "--audit="+path,
		"--write-token-file="+apitest.TokenFile(t, apitest.Token+" ann"))
	post(t, base+"/v1/force", fmt.Sprintf(`{"limit":%q,"key":"tenant:7","n":%d}`,
		example.Changes[0].Limit, *example.Changes[0].Units))
	stop()
	got := events(t, path)[0]
	if got.Changes[0].After.ResetAfterMS > 59_000 { // the clock moves
		got.Changes[0].After.ResetAfterMS = 60_000
	}
	for _, e := range []*audit.Event{&got, &example} {
		e.Time, e.From, e.Changes[0].Hash = time.Time{}, "", fmt.Sprint(len(e.Changes[0].Hash))
	}
	if inJSON(t, got) != inJSON(t, example) {
		t.Errorf("got\n%s, and the page has\n%s", inJSON(t, got), inJSON(t, example))
	}
}

func inJSON(t *testing.T, of any) string {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
