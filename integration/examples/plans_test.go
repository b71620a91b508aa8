package examples

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// planFile is a table of plans. Customers who change plans keep their history, because the limits
// have the same names in each plan.
const planFile = `
plans:
  free:
  - requests=2/1s
  - exports=10/1d
  pro:
  - requests=100/1s
  - exports=500/1d
`

// Limits decode themselves, so a table of plans needs no code of its own.
func Example_plansFromYAML() {
	var config struct {
		Plans map[string][]ratelimit.Limit `yaml:"plans"`
	}
	if err := yaml.Unmarshal([]byte(planFile), &config); err != nil {
		log.Fatal(err)
	}
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiters := make(map[string]*ratelimit.Limiter)
	for plan, limits := range config.Plans {
		limiter, err := newPlan(store, limits)
		if err != nil {
			log.Fatalf("plan %s: %v", plan, err)
		}
		limiters[plan] = limiter
	}

	ctx := context.Background()
	for _, plan := range []string{"free", "free", "free", "pro"} {
		res, err := limiters[plan].Allow(ctx, "customer:42")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(plan, res.Allowed, res.Limit.Max, res.Remaining)
	}
	// Output:
	// free true 2 1
	// free true 2 0
	// free false 2 0
	// pro true 100 97
}

// newPlan returns a limiter that admits a demand if all limits of a plan admit it.
func newPlan(store ratelimit.Store, limits []ratelimit.Limit) (*ratelimit.Limiter, error) {
	algorithms := make([]ratelimit.Algorithm, len(limits))
	for i, limit := range limits {
		algorithms[i] = algorithm.SlidingLog(limit)
	}
	return ratelimit.New(store, algorithms...)
}

// One variable per plan holds its limits, separated by spaces.
func Example_plansFromEnvironment() {
	os.Setenv("PLAN_FREE", "requests=2/1s exports=10/1d")
	os.Setenv("PLAN_PRO", "requests=100/1s exports=500/1d")
	defer os.Unsetenv("PLAN_FREE")
	defer os.Unsetenv("PLAN_PRO")

	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	for _, plan := range []string{"FREE", "PRO"} {
		var limits []ratelimit.Limit
		for text := range strings.FieldsSeq(os.Getenv("PLAN_" + plan)) {
			limit, err := ratelimit.ParseLimit(text)
			if err != nil {
				log.Fatalf("PLAN_%s: %v", plan, err)
			}
			limits = append(limits, limit)
		}
		limiter, err := newPlan(store, limits)
		if err != nil {
			log.Fatalf("PLAN_%s: %v", plan, err)
		}
		fmt.Println(plan, limiter.Limits())
	}
	// Output:
	// FREE [requests=2/1s exports=10/24h0m0s]
	// PRO [requests=100/1s exports=500/24h0m0s]
}
