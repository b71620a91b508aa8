package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// lua54 runs scripts in Lua 5.4, as Dragonfly does. The commands of scripts and all others go to a
// real server. It speaks RESP2.
type lua54 struct {
	redis   *redis.Client
	scripts sync.Map // sources by SHA-1

	mu   sync.Mutex // held while a script runs
	to   *bufio.Writer
	from *bufio.Reader
}

// SpeakLua54 returns the address of a server that keeps its keys on the one at target, and runs
// scripts in Lua 5.4. It skips the test if the program lua5.4 is missing.
func SpeakLua54(t testing.TB, target string) (addr string) {
	t.Helper()
	cmd := exec.Command("lua5.4", Module+"/integration/servers/testdata/lua54.lua")
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) {
		t.Skip("lua5.4 is not in PATH")
	} else if err != nil {
		t.Fatal(err)
	}
	s := &lua54{redis: redis.NewClient(&redis.Options{Addr: target, Protocol: 2}),
		to: bufio.NewWriter(to), from: bufio.NewReader(from)}
	t.Cleanup(func() {
		to.Close()
		if err := errors.Join(cmd.Wait(), s.redis.Close()); err != nil {
			t.Error(err)
		}
	})
	return serveConns(t, s.serve)
}

func (s *lua54) serve(client net.Conn) {
	r, w := bufio.NewReader(client), bufio.NewWriter(client)
	for {
		words, err := readWords(r)
		if err != nil {
			return
		}
		s.answer(w, words)
		if r.Buffered() == 0 && w.Flush() != nil {
			return
		}
	}
}

func (s *lua54) answer(w *bufio.Writer, words []string) {
	switch strings.ToLower(words[0]) {
	case "hello":
		writeReply(w, errors.New("ERR unknown command 'hello'"))
	case "script": // FLUSH
		s.scripts.Clear()
		writeReply(w, "OK")
	case "eval":
		s.scripts.Store(scriptSHA(words[1]), words[1])
		s.run(w, words[1], words[2:])
	case "evalsha":
		if source, ok := s.scripts.Load(words[1]); ok {
			s.run(w, source.(string), words[2:])
		} else {
			writeReply(w, errors.New("NOSCRIPT No matching script"))
		}
	default:
		writeReply(w, s.do(words))
	}
}

// run has the interpreter run a script, and answers the commands of the script until its reply.
func (s *lua54) run(w *bufio.Writer, source string, words []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writeWords(s.to, append([]string{source}, words...)...)
	for s.to.Flush() == nil {
		answer, err := readWords(s.from)
		if err != nil {
			break
		}
		if answer[0] == "reply" {
			fmt.Fprint(w, answer[1])
			return
		}
		writeReply(s.to, s.do(answer[1:]))
	}
	writeReply(w, errors.New("ERR the interpreter ended"))
}

// do runs a command on the real server, and returns its reply or error.
func (s *lua54) do(words []string) any {
	args := make([]any, len(words))
	for i := range words {
		args[i] = words[i]
	}
	reply, err := s.redis.Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return reply
}

func writeReply(w *bufio.Writer, reply any) {
	switch reply := reply.(type) {
	case string:
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(reply), reply)
	case int64:
		fmt.Fprintf(w, ":%d\r\n", reply)
	case error:
		fmt.Fprintf(w, "-%v\r\n", reply)
	case []any:
		fmt.Fprintf(w, "*%d\r\n", len(reply))
		for _, part := range reply {
			writeReply(w, part)
		}
	default:
		fmt.Fprint(w, "$-1\r\n")
	}
}
