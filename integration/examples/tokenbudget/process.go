package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
)

// A process is one of workers, as the process that has started it sees it.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // of the process, set before ended is closed
}

// startProcess starts a process of workers, whose events go to book.
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

// end lets the workers finish their calls, and waits until they have.
func (p *process) end() error {
	err := p.stdin.Close()
	<-p.ended
	return errors.Join(err, p.err)
}

// kill ends the process at once. If it has ended, kill does nothing.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.ended
	return nil
}
