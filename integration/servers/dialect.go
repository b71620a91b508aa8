package servers

import (
	"bufio"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Dialect is how a service of another kind runs scripts, emulated in front of a real server.
type Dialect struct {
	Declared  bool // a script may use only the keys that it was given
	NoTime    bool // scripts may not call TIME
	NoStruct  bool // Lua has no library struct
	Forgetful bool // every third EVALSHA reaches a node that does not know the script
	Arguments int  // if not 0, a command may have so many words at most, its name among them
}

// Speak returns the address of a proxy that makes the server at target speak d. It is closed at the
// end of the test.
func (d Dialect) Speak(t testing.TB, target string) (addr string) {
	t.Helper()
	p := &dialectProxy{Dialect: d, target: target, prelude: d.prelude()}
	return serveConns(t, p.serve)
}

// serveConns calls serve with each connection to the address that it returns, until the test ends.
func serveConns(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.Map
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err != nil {
				continue
			}
			conns.Store(conn, nil)
			running.Go(func() {
				serve(conn)
				conn.Close()
				conns.Delete(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		running.Wait()
	})
	return l.Addr().String()
}

// prelude returns what is put before each script, on its first line, so that the line numbers of
// errors stay the same.
func (d Dialect) prelude() string {
	var b strings.Builder
	fmt.Fprintf(&b, "local time, declared = %t, %t\n", !d.NoTime, !d.Declared)
	b.WriteString(strictRedis)
	if d.NoStruct {
		b.WriteString("local struct, _G = nil, {}\n")
	}
	return strings.Join(strings.Fields(b.String()), " ") + " "
}

// strictRedis replaces the table redis by one that refuses what a dialect does not allow.
const strictRedis = `
local redis = (function(redis)
  local known, strict = {}, {}
  for i = 1, #KEYS do known[KEYS[i]] = true end
  local function refusal(command, key)
    if command == 'TIME' then
      return not time and 'ERR This Redis command is not allowed from script'
    end
    return not declared and not known[key] and 'ERR script tried accessing undeclared key'
  end
  for name, value in pairs(redis) do strict[name] = value end
  strict.call = function(...)
    local err = refusal(...)
    if err then error({err = err}, 0) end
    return redis.call(...)
  end
  strict.pcall = function(...)
    local err = refusal(...)
    if err then return {err = err} end
    return redis.pcall(...)
  end
  return strict
end)(redis)
`

// dialectProxy rewrites the scripts that clients send, and the names of scripts in both directions.
type dialectProxy struct {
	Dialect
	target  string
	prelude string
	runs    atomic.Int64 // of EVALSHA
	own     sync.Map     // from the name of a client's script to that of the server's
	clients sync.Map     // the other way
}

func (p *dialectProxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	pump := func(forward func(*bufio.Reader, *bufio.Writer) error, from, to net.Conn) {
		r, w := bufio.NewReader(from), bufio.NewWriter(to)
		for forward(r, w) == nil && (r.Buffered() > 0 || w.Flush() == nil) {
		}
		from.Close()
		to.Close()
	}
	var wg sync.WaitGroup
	wg.Go(func() { pump(p.line, server, client) })
	pump(p.command, client, server)
	wg.Wait()
}

// command forwards one command.
func (p *dialectProxy) command(r *bufio.Reader, w *bufio.Writer) error {
	words, err := readWords(r)
	if err != nil {
		return err
	}
	if p.Arguments > 0 && len(words) > p.Arguments {
		// The server itself sends the error, when it is the command's turn.
		words = []string{"eval", "return redis.error_reply('ERR too many arguments')", "0"}
	}
	switch strings.TrimSuffix(strings.ToLower(words[0]), "_ro") {
	case "eval":
		words[1] = p.rewrite(words[1])
	case "evalsha":
		if own, ok := p.own.Load(strings.ToLower(words[1])); ok {
			words[1] = own.(string)
		}
		if p.Forgetful && p.runs.Add(1)%3 == 0 {
			words[1] = strings.Repeat("0", 2*sha1.Size)
		}
	case "script":
		if len(words) > 2 && strings.EqualFold(words[1], "load") {
			words[2] = p.rewrite(words[2])
		}
	}
	writeWords(w, words...)
	return nil
}

// readWords reads an array of strings, as a command is.
func readWords(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		length, err := readLength(r, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+len("\r\n"))
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:length])
	}
	return words, nil
}

func writeWords(w *bufio.Writer, words ...string) {
	fmt.Fprintf(w, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(word), word)
	}
}

func readLength(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("got %q, want a line that begins with %c", line, kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// rewrite returns the script that the server runs instead of source, and remembers both names.
func (p *dialectProxy) rewrite(source string) string {
	rewritten := p.prelude + source
	name, own := scriptSHA(source), scriptSHA(rewritten)
	p.own.Store(name, own)
	p.clients.Store(own, name)
	return rewritten
}

func scriptSHA(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

var scriptName = regexp.MustCompile(`[0-9a-f]{40}`)

// line forwards one line of a reply.
func (p *dialectProxy) line(r *bufio.Reader, w *bufio.Writer) error {
	line, err := r.ReadBytes('\n')
	line = scriptName.ReplaceAllFunc(line, func(own []byte) []byte {
		if name, ok := p.clients.Load(string(own)); ok {
			return []byte(name.(string))
		}
		return own
	})
	_, _ = w.Write(line) // an error comes back from Flush
	return err
}
