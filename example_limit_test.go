package ratelimit_test

import (
	"encoding/json"
	"fmt"

	"github.com/truewindow/ratelimit"
)

func ExampleParseLimit() {
	for _, s := range []string{"login=10/s", "search=100/1m30s", "burst=20/500ms",
		"export=5000/7d", "api=0/s"} {
		limit, err := ratelimit.ParseLimit(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit.Name, limit.Max, limit.Window)
	}
	// Output:
	// login 10 1s
	// search 100 1m30s
	// burst 20 500ms
	// export 5000 168h0m0s
	// ratelimit: invalid limit: Max 0 is not between 1 and 1099511627776
}

// Limits can be read from JSON, YAML and flags.
func ExampleLimit_UnmarshalText() {
	var config struct {
		Plans map[string][]ratelimit.Limit
	}
	err := json.Unmarshal([]byte(`{
		"plans": {
			"free": ["burst=2/s", "day=100/d"],
			"pro":  ["burst=20/s", "day=10000/d"]
		}
	}`), &config)
	fmt.Println(config.Plans["free"], config.Plans["pro"][1].Max, err)
	// Output: [burst=2/1s day=100/24h0m0s] 10000 <nil>
}
