package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
)

// A process is the parent's handle of a worker process.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // exit error, set before ended is closed
}

// startProcess starts a worker process and adds its events to book.
func startProcess(c config, book *ledger) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	task, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(task))
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		events := json.NewDecoder(stdout)
		for {
			var e event
			if events.Decode(&e) != nil {
				break // the process has ended
			}
			book.add(p, e)
		}
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// end lets the workers finish their calls and waits for the process.
func (p *process) end() error {
	err := p.stdin.Close()
	<-p.ended
	return errors.Join(err, p.err)
}

// kill kills the process. It does nothing if the process has ended.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}
