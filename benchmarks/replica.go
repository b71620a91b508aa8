package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// startAppending makes the server write an append-only file until stop. It returns when the initial
// rewrite is done.
func (s *server) startAppending(ctx context.Context) (stop func(), err error) {
	// the error does not matter: a server that has ended appends nothing
	stop = func() { _ = s.configure(context.Background(), "appendonly", "no") }
	if err := errors.Join(
		s.configure(ctx, "appendfsync", "no"),
		s.configure(ctx, "auto-aof-rewrite-percentage", "0"),
		s.configure(ctx, "appendonly", "yes"),
	); err != nil {
		stop()
		return nil, err
	}
	for { // the file begins with a copy of all keys
		fields, err := s.info(ctx, "persistence")
		if err != nil {
			stop()
			return nil, err
		}
		if fields["aof_enabled"] == "1" && fields["aof_rewrite_in_progress"] == "0" &&
			fields["aof_rewrite_scheduled"] == "0" {
			return stop, nil
		}
		select {
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// attachReplica makes the server replicate to a connection that discards everything.
func (s *server) attachReplica(ctx context.Context) (detach func(), err error) {
	if err := s.configure(ctx, "repl-diskless-sync-delay", "0"); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: startTimeout}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		conn.Close()
		return nil, err
	}
	r := bufio.NewReader(conn)
	for _, step := range []struct {
		command,
		answer string
	}{{"REPLCONF capa eof capa psync2", "+OK"}, {"PSYNC ? -1", "+FULLRESYNC"}} {
		if _, err := io.WriteString(conn, step.command+"\r\n"); err != nil {
			conn.Close()
			return nil, err
		}
		line := "\n"
		for err == nil && line == "\n" { // keep-alives
			line, err = r.ReadString('\n')
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
		if !strings.HasPrefix(line, step.answer) {
			conn.Close()
			return nil, fmt.Errorf("the server does not replicate: it answered %q", line)
		}
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, err
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, r) }) // until the connection is closed
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
				if _, err := io.WriteString(conn, "REPLCONF ACK 0\r\n"); err != nil {
					return
				}
			}
		}
	})
	return func() {
		close(done)
		conn.Close()
		wg.Wait()
	}, nil
}
