package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// A program is a server that runs as a process on this machine, in its own directory.
type program struct {
	cmd    *exec.Cmd
	dir    string
	addr   string
	tls    bool
	exited chan struct{} // closed when the process has ended
}

// newProgram starts a program in PATH on a free loopback port.
func newProgram(name string, l Launch) (*Server, error) {
	dir, err := os.MkdirTemp("", "ratelimit-"+name+"-")
	if err != nil {
		return nil, err
	}
	p := &program{dir: dir, tls: l.TLS}
	if err := p.launch(name, l); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), p.close())
	}
	return &Server{Image: name, Addr: p.addr, peer: p.addr, program: p}, nil
}

func (p *program) launch(name string, l Launch) error {
	for file, content := range l.Files {
		if err := os.WriteFile(filepath.Join(p.dir, file), content, 0o644); err != nil {
			return err
		}
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	p.addr = net.JoinHostPort(loopback, strconv.Itoa(port))
	p.cmd = exec.Command(name, slices.Concat(l.Args, l.listen(port))...)
	p.cmd.Dir = p.dir
	p.cmd.Env = append(os.Environ(), l.env...)
	ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
	defer cancel()
	return p.start(ctx)
}

// start starts or restarts the process and returns when it answers.
func (p *program) start(ctx context.Context) error {
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	old := p.cmd
	cmd := &exec.Cmd{
		Path: old.Path, Args: old.Args, Env: old.Env, Dir: old.Dir, Err: old.Err, Stdout: log,
		Stderr: log,
	}
	endWithTests(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	p.cmd, p.exited = cmd, exited
	return Poll(ctx, func() (bool, error) {
		select {
		case <-exited:
			text, err := os.ReadFile(log.Name())
			return false,
				errors.Join(fmt.Errorf("the server exited: %s", bytes.TrimSpace(text)), err)
		default:
			return answersPing(ctx, p.addr, p.tls), nil
		}
	})
}

// end sends a signal that ends the process, and waits for it.
func (p *program) end(ctx context.Context, signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *program) signal(ctx context.Context, name string) error {
	switch name {
	case "SIGSTOP":
		return p.cmd.Process.Signal(syscall.SIGSTOP)
	case "SIGCONT":
		return p.cmd.Process.Signal(syscall.SIGCONT)
	case "SIGKILL":
		return p.end(ctx, syscall.SIGKILL)
	}
	return fmt.Errorf("unknown signal %s", name)
}

// write replaces the content of a file by one of the same length, because the process may have
// mapped the file.
func (p *program) write(file string, content []byte) error {
	f, err := os.OpenFile(filepath.Join(p.dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

func (p *program) close() error {
	var err error
	if p.exited != nil {
		ctx, cancel := context.WithTimeout(context.Background(), FaultTimeout)
		defer cancel()
		err = p.end(ctx, syscall.SIGKILL)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
