// Command regionaljobs shares the daily quota of an upstream among eight regional jobs, which stop
// when it is used up:
//
//	go -C integration run ./examples/regionaljobs
//
// Each job has more to do than the quota allows. If -store is the URL of a server, several
// processes with the same -account share the quota, each with the jobs of its own regions.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/upstream"

	_ "github.com/truewindow/ratelimit/backend/memory"
	_ "github.com/truewindow/ratelimit/backend/redis"
	_ "github.com/truewindow/ratelimit/backend/rueidis"
	_ "github.com/truewindow/ratelimit/backend/valkey"
)

type config struct {
	Store   string
	Account string // owner of the quota
	Quota   int64  // in any 24 hours
	Regions int
	Tasks   int // per region
}

func main() {
	var c config
	flag.StringVar(&c.Store, "store", "memory", "`URL` of the store")
	flag.StringVar(&c.Account, "account", "acme", "account at the upstream")
	flag.Int64Var(&c.Quota, "quota", 9500, "units of the account in any 24 hours")
	flag.IntVar(&c.Regions, "regions", 8, "jobs that this process runs")
	flag.IntVar(&c.Tasks, "tasks", 10_000, "tasks of each job; a task costs one unit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs a job for each region until all have ended, and writes to out how the quota was used.
func run(ctx context.Context, c config, out io.Writer) (err error) {
	store, err := backend.Open(ctx, c.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var units atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		units.Add(1)
	}))
	defer api.Close()

	fmt.Fprintf(out, "%d jobs of %d tasks share %d units in any 24 hours\n",
		c.Regions, c.Tasks, c.Quota)
	reports := make([]string, c.Regions)
	errs := make([]error, c.Regions)
	var all sync.WaitGroup
	for i := range c.Regions {
		j := job{config: c, url: fmt.Sprintf("%s/regions/%d", api.URL, i+1)}
		all.Go(func() { reports[i], errs[i] = j.run(ctx, store) })
	}
	all.Wait()
	for i, report := range reports {
		if report != "" {
			fmt.Fprintf(out, "region %d: %s\n", i+1, report)
		}
	}
	fmt.Fprintf(out, "the upstream has counted %d units\n", units.Load())
	return errors.Join(errs...)
}

// job is the work of one region.
type job struct {
	config
	url string
}

// run does the tasks of a job until the quota is used up, and reports how many it did. Each job has
// its own transport, as if it were alone in its process.
func (j job) run(ctx context.Context, store ratelimit.Store) (string, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	transport, err := upstream.New(store, &upstream.Options{
		Base:   base,
		Cost:   func(*http.Request) (string, int64, error) { return j.Account, 1, nil },
		NoWait: true, // the next run continues when there is quota again
	}, ratelimit.PerDay("geodata", j.Quota))
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for done := range j.Tasks {
		err := j.task(ctx, client)
		var limited *upstream.LimitError
		if errors.As(err, &limited) {
			return fmt.Sprintf("%d tasks are done, the others can begin in %v",
				done, time.Until(limited.RetryAt).Round(time.Minute)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("all %d tasks are done", j.Tasks), nil
}

func (j job) task(ctx context.Context, client *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}
