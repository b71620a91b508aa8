// Command tokenbudget spends budgets of tokens and of money with 200 workers in two processes, and
// kills one of the processes halfway:
//
//	go -C integration run ./examples/tokenbudget -store redis://127.0.0.1:6379
//
// Each worker reserves an estimate, makes a call that uses between half and one and a half times as
// many tokens, and commits what was used. One call in ten is settled twice by its token, as if a
// message were delivered twice. The program fails if a window held more than its budget and debt,
// if not exactly what was used is charged, or if what the killed process held is not free in time.
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
	Store     string
	Key       string // key of the budgets
	Process   int
	Tokens    int64 // the budget in any Window
	Window    time.Duration
	Cents     int64         // the budget of a day
	DayBegins time.Duration // after midnight in UTC
	Workers   int           // per process
	Call      time.Duration // the mean time of a call
	Timeout   time.Duration // of what a process holds that was killed
	For       time.Duration
}

func main() {
	if task := os.Getenv(workerEnv); task != "" {
		os.Exit(work(task))
	}
	now := time.Now()
	c := config{
		Key: fmt.Sprintf("tokenbudget:%d", now.UnixNano()),
		// So the day does not end before the program.
		DayBegins: time.Duration(now.UnixMicro()) * time.Microsecond % (24 * time.Hour),
	}
	flag.StringVar(&c.Store, "store", "redis://127.0.0.1:6379?timeout=1s", "`URL` of the store")
	flag.Int64Var(&c.Tokens, "tokens", 1_000_000, "budget in any window")
	flag.DurationVar(&c.Window, "window", time.Minute, "window of the budget")
	flag.Int64Var(&c.Cents, "cents", 20_000, "budget of a day")
	flag.IntVar(&c.Workers, "workers", 100, "workers in each of the two processes")
	flag.DurationVar(&c.Call, "call", time.Second, "mean time of a call")
	flag.DurationVar(&c.Timeout, "timeout", 6*time.Second,
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
	c.Process = 1
	dies, err := startProcess(c, &book)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dies.kill()) }()
	killed, err := openBudget(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, killed.store.Close()) }()
	fmt.Fprintf(out, "two processes of %d workers share %d tokens in any %v and %d cents a day\n",
		c.Workers, c.Tokens, c.Window, c.Cents)

	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	report := time.NewTicker(max(c.For/15, time.Millisecond))
	defer report.Stop()
	half := time.After(c.For / 2)
	var free <-chan time.Time // when what the killed process holds has to be free
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-report.C:
			if s, err := b.state(context.WithoutCancel(ctx)); err != nil {
				say("%v", err)
			} else {
				say("%7d tokens and %5d cents are free", s.tokens, s.cents)
			}
		case <-half:
			if err := dies.kill(); err != nil {
				return err
			}
			free = time.After(c.freeAfter())
			calls, tokens := book.inFlight(dies)
			say("killed a process that holds %d tokens for %d calls in flight", tokens, calls)
		case <-free:
			switch s, err := killed.state(context.WithoutCancel(ctx)); {
			case err != nil:
				return err
			case s.calls > 0:
				return fmt.Errorf("%d calls of the killed process are in flight after %v",
					s.calls, c.freeAfter())
			}
			say("what it held is free")
			free = nil
		}
	}
	if err := stays.end(); err != nil {
		return err
	}
	if free != nil {
		return errors.New("it ended before what the killed process held was free: run it longer")
	}
	spent, err := b.spent(context.WithoutCancel(ctx), c)
	if err != nil {
		return err
	}
	return book.judge(c, spent, out)
}

// freeAfter returns when the units of a killed process are free. A hold may last an eighth longer
// than its time-out.
func (c config) freeAfter() time.Duration { return c.Timeout + max(c.Timeout/8, time.Second) }
