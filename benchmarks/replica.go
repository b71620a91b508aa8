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
	if _, err := io.WriteString(conn, "REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n"); err != nil {
		conn.Close()
		return nil, err
	}
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-") {
			conn.Close()
			return nil, fmt.Errorf("the server does not replicate: %q: %w", line, err)
		}
		if strings.HasPrefix(line, "+FULLRESYNC") {
			break
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
