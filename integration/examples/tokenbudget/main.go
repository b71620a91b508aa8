// Command tokenbudget spends a budget of tokens with 200 workers in two processes, kills one of the
// processes halfway, and checks that no window ever held more than the budget:
//
//	go -C integration run ./examples/tokenbudget -store redis://127.0.0.1:6379
//
// Each worker reserves an estimate, makes a call that uses between half and one and a half times as
// many tokens, and commits the tokens used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"time"
)

// config is the configuration of all processes.
type config struct {
	Store   string
	Key     string // key of the budget
	Tokens  int64  // the budget in any Window
	Window  time.Duration
	Workers int           // per process
	Call    time.Duration // the mean time of a call
	Timeout time.Duration // of what a process holds that was killed
	For     time.Duration
}

func main() {
	if task := os.Getenv(workerEnv); task != "" {
		os.Exit(work(task))
	}
	c := config{Key: fmt.Sprintf("tokenbudget:%d", time.Now().UnixNano())}
	flag.StringVar(&c.Store, "store", "redis://127.0.0.1:6379?timeout=1s", "`URL` of the store")
	flag.Int64Var(&c.Tokens, "tokens", 1_000_000, "budget in any window")
	flag.DurationVar(&c.Window, "window", time.Minute, "window of the budget")
	flag.IntVar(&c.Workers, "workers", 100, "workers in each of the two processes")
	flag.DurationVar(&c.Call, "call", time.Second, "mean time of a call")
	flag.DurationVar(&c.Timeout, "timeout", 20*time.Second,
		"when the units that a killed process holds are free")
	flag.DurationVar(&c.For, "for", 150*time.Second, "how long to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, c, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run starts two processes, kills one of them halfway, and writes to out how the budget was used.
func run(ctx context.Context, c config, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, c.For)
	defer cancel()
	b, err := openBudget(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.store.Close()) }()
	var book ledger
	stays, err := startProcess(c, &book)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stays.kill()) }()
	dies, err := startProcess(c, &book)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dies.kill()) }()
	fmt.Fprintf(out, "two processes of %d workers share %d tokens in any %v\n",
		c.Workers, c.Tokens, c.Window)

	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	report := time.NewTicker(max(c.For/15, time.Millisecond))
	defer report.Stop()
	half := time.After(c.For / 2)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-report.C:
			say("%v", b.state(context.WithoutCancel(ctx)))
		case <-half:
			if err := dies.kill(); err != nil {
				return err
			}
			calls, tokens := book.inFlight(dies)
			say("killed a process that holds %d tokens for %d calls in flight: they are free in %v",
				tokens, calls, c.Timeout)
		}
	}
	if err := stays.end(); err != nil {
		return err
	}
	say("%v", b.state(context.WithoutCancel(ctx)))
	return book.judge(c, out)
}
