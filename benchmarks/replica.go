package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// attachReplica makes the server replicate, to a connection that reads everything and keeps nothing.
func (s *server) attachReplica(ctx context.Context) (detach func(), err error) {
	if err := s.control.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err(); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: startTimeout}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(startTimeout))
	r := bufio.NewReader(conn)
	for _, step := range []struct{ command, answer string }{{"REPLCONF capa eof capa psync2", "+OK"}, {"PSYNC ? -1", "+FULLRESYNC"}} {
		if _, err := io.WriteString(conn, step.command+"\r\n"); err != nil {
			conn.Close()
			return nil, err
		}
		line := "\n"
		for err == nil && line == "\n" { // the server keeps the connection alive with them
			line, err = r.ReadString('\n')
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
		if !strings.HasPrefix(line, step.answer) {
			conn.Close()
			return nil, fmt.Errorf("the server does not replicate: %q", line)
		}
	}
	conn.SetDeadline(time.Time{})
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, r) })
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
				io.WriteString(conn, "REPLCONF ACK 0\r\n")
			}
		}
	})
	return func() {
		close(done)
		conn.Close()
		wg.Wait()
	}, nil
}
