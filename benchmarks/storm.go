package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// A storm is far more demand on one fresh key than its limit admits.
const (
	stormKey     = "storm"
	stormCallers = 64
	stormCalls   = 20 // per caller
)

var stormQuota = quota{50, 30 * time.Second}

type stormCount struct{ Calls, Admitted, Failed int64 }

// share is NaN if there was no storm.
func (c stormCount) share() float64 {
	if c.Calls == 0 {
		return math.NaN()
	}
	return float64(c.Admitted) / float64(stormQuota.max)
}

func (c stormCount) failed() float64 { return float64(c.Failed) / float64(max(c.Calls, 1)) }

// playStorm makes stormCallers goroutines decide on one key at once.
func playStorm(ctx context.Context, ds []decider) stormCount {
	var yes, bad atomic.Int64
	var wg sync.WaitGroup
	for g := range stormCallers {
		wg.Go(func() {
			for range stormCalls {
				ok, err := ds[g%len(ds)].allow(ctx, stormKey)
				if ok {
					yes.Add(1)
				}
				if err != nil {
					bad.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return stormCount{stormCallers * stormCalls, yes.Load(), bad.Load()}
}

// stormEnv makes this program a process of a storm: it holds a stormTask.
const stormEnv = "RATELIMIT_BENCHMARKS_STORM"

type stormTask struct{ Entry, Addr string }

// stormProcesses deletes all keys and runs a storm in two processes at the same time.
func stormProcesses(ctx context.Context, task stormTask) (sum stormCount, err error) {
	control := newGoRedis(task.Addr)
	defer control.Close()
	if err := control.FlushAll(ctx).Err(); err != nil {
		return sum, err
	}
	text, err := json.Marshal(task)
	if err != nil {
		return sum, err
	}
	self, err := os.Executable()
	if err != nil {
		return sum, err
	}
	type process struct {
		cmd     *exec.Cmd
		begin   io.Writer
		answers *json.Decoder
	}
	var ps []process
	defer func() {
		for _, p := range ps {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait() // returns that it was killed, unless it had ended
		}
	}()
	for range 2 {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env, cmd.Stderr = append(os.Environ(), stormEnv+"="+string(text)), os.Stderr
		stdin, inErr := cmd.StdinPipe()
		stdout, outErr := cmd.StdoutPipe()
		if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
			return sum, err
		}
		ps = append(ps, process{cmd, stdin, json.NewDecoder(stdout)})
	}
	for _, p := range ps {
		var ready bool
		if err := p.answers.Decode(&ready); err != nil {
			return sum, fmt.Errorf("a process of the storm did not become ready: %w", err)
		}
	}
	for _, p := range ps {
		if _, err := io.WriteString(p.begin, "\n"); err != nil {
			return sum, err
		}
	}
	for _, p := range ps {
		var c stormCount
		if err := p.answers.Decode(&c); err != nil {
			return sum, fmt.Errorf("a process of the storm failed: %w", err)
		}
		sum = stormCount{sum.Calls + c.Calls, sum.Admitted + c.Admitted, sum.Failed + c.Failed}
	}
	return sum, nil
}

// stormProcess runs in a process of stormProcesses: it reports that it is ready, waits for a byte,
// and reports its count.
func stormProcess(ctx context.Context, env string, stdin io.Reader, stdout io.Writer) error {
	var task stormTask
	if err := json.Unmarshal([]byte(env), &task); err != nil {
		return err
	}
	entry, err := findRedisEntry(task.Entry)
	if err != nil {
		return err
	}
	d, err := entry.open(task.Addr, stormQuota)
	if err != nil {
		return err
	}
	defer d.close()
	answers := json.NewEncoder(stdout)
	if _, err := d.allow(ctx, "warm"); err != nil { // connects and loads the script
		return err
	}
	if err := answers.Encode(true); err != nil {
		return err
	}
	if _, err := stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	return answers.Encode(playStorm(ctx, []decider{d}))
}
