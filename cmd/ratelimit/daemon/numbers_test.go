package daemon

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// typeName matches what a client must not see of the parser.
var typeName = regexp.MustCompile(`int64|json:|Go |strconv|unmarshal`)

// TestNumbers: a number that no request may have gets 400, whose detail names the field and says
// which numbers it may have.
func TestNumbers(t *testing.T) {
	h := budgetAPI(t, budgetFlags(), asked{t})
	token := reserveToken(t, "tokens 5")
	for _, field := range []struct{ name, path, body, claim, rule string }{
		{"n", "/v1/take", `{"key":"secret-key","n":%s}`, "", "from 1 to 1099511627776"},
		{"n", "/v1/peek", `{"key":"secret-key","n":%s}`, "", "from 1 to 1099511627776"},
		{"n", "/v1/take-all", of("requests, tokens %s"), "claims[1]", "from 0 to 1099511627776"},
		{"n", "/v1/peek-all", of("tokens %s"), "claims[0]", "from 0 to 1099511627776"},
		{"n", "/v1/reserve", of("tokens %s"), "claims[0]", "from 0 to 1099511627776"},
		{"n", "/v1/extend", `{"token":"` + token + `","n":[%s]}`, "", "from 0 to 1099511627776"},
		{"actual", "/v1/commit", `{"token":"` + token + `","actual":[%s]}`, "",
			"from 0 to 1099511627776"},
		{"wait_ms", "/v1/acquire", one("calls", `"wait_ms":%s`), "", "from 0 to 5000"},
		{"n", "/v1/force", one("tokens", `"n":%s`), "", "from 1 to 1099511627776"},
		{"for_ms", "/v1/block", one("blocked", `"for_ms":%s`), "", "from 1 to 1099511627776"},
	} {
		bad := []string{
			"9223372036854775808", "-9223372036854775809", "1e3", "1.0", "0.5", "-1", "1e400",
			"-1e400", `"5"`, `""`, "null", "true", "{}", "[]", "[1]", strings.Repeat("9", 5000),
		}
		if strings.HasPrefix(field.rule, "from 1") {
			bad = append(bad, "0", "-0")
		}
		for _, value := range bad {
			checkNumber(t, h, field.path, fmt.Sprintf(field.body, value),
				`"`+field.name+`"`, field.claim, field.rule)
		}
		twice := `1,"` + field.name + `":1`
		if strings.Contains(field.body, "[%s]") {
			twice = `1],"` + field.name + `":[1`
		}
		checkNumber(t, h, field.path, fmt.Sprintf(field.body, twice),
			`"`+field.name+`" is given twice`, field.claim)
		checkNumber(t, h, field.path, fmt.Sprintf(field.body, "01"), "not JSON", field.claim)
	}
	for _, field := range []struct{ name, path string }{
		{"n", "/v1/extend"}, {"actual", "/v1/commit"},
	} {
		for _, value := range []string{"5", "null", `"5"`, "{}"} {
			checkNumber(t, h, field.path, `{"token":"`+token+`","`+field.name+`":`+value+`}`,
				`"`+field.name+`" must be a list`)
		}
	}
	status, _, _ := call(t, h, request(http.MethodPost, "/v1/take",
		fmt.Sprintf(`{"key":"secret-key","n":%d}`, int64(math.MaxInt64))))
	if status != http.StatusUnprocessableEntity {
		t.Errorf("a number that is in range for the parser only: %d", status)
	}
}

func checkNumber(t *testing.T, h http.Handler, path, body string, want ...string) {
	t.Helper()
	_, p := checkProblem(t, h, request(http.MethodPost, path, body), http.StatusBadRequest)
	detail, _ := p["detail"].(string)
	for _, text := range want {
		if !strings.Contains(detail, text) {
			t.Errorf("%s %.90s: %q has no %q", path, body, detail, text)
		}
	}
	if typeName.MatchString(detail) {
		t.Errorf("%s %.90s: %q", path, body, detail)
	}
}
