package daemon

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/conns"
	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
)

// bounds are those of what clients make the service hold: connections of each address, and the
// bytes of requests that are not finished.
type bounds struct {
	http, grpc, admin int
	budget            *conns.Budget
	onCut             func(why string)
}

// of are the bounds of an address with so many connections.
func (b *bounds) of(most int) conns.Bounds {
	return conns.Bounds{Connections: most, Budget: b.budget, OnCut: b.onCut}
}

const (
	// assumedMemory is the memory for clients where nothing bounds it.
	assumedMemory = 4 << 30
	// connBytes is the memory for which there is a connection of HTTP: with TLS it needs half of
	// it. One of gRPC needs four times as much.
	connBytes = 96 << 10
	// requestBytes is what a request needs beside what a client sends, and streamBytes what one of
	// HTTP/2 needs beside that.
	requestBytes, streamBytes = 8 << 10, 16 << 10
)

// newBounds returns bounds that fit the memory and the files that the process may have. Without
// GOMEMLIMIT it sets that, to leave a quarter of the memory of the cgroup to what is not Go's.
func newBounds(log *slog.Logger) *bounds {
	memory := debug.SetMemoryLimit(-1)
	if memory == math.MaxInt64 {
		memory = assumedMemory
		if most := cgroupMemory(); most > 0 {
			memory = most / 4 * 3
			debug.SetMemoryLimit(memory)
		}
	}
	most := int(min(memory/connBytes, maxFiles()/2))
	b := &bounds{http: most, grpc: most / 4, admin: most / 8,
		budget: conns.NewBudget(memory / 4)}
	var cuts lograte.Limit
	b.onCut = func(why string) {
		if ok, suppressed := cuts.Pass(time.Now()); ok {
			go log.Warn("a connection was cut off: "+why, "connections", most,
				"bytes", memory/4, "suppressed", suppressed)
		}
	}
	return b
}

// cgroupMemory returns the memory that the cgroup of the process may have, or 0 if it is not bound.
func cgroupMemory() (least int64) {
	file, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(file)) { // ID:CONTROLLERS:PATH
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 || fields[1] != "" && fields[1] != "memory" {
			continue
		}
		root, name := "/sys/fs/cgroup", "memory.max"
		if fields[1] == "memory" { // of version 1
			root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// In a container the path may be that outside of it, and the root is the cgroup.
		for at := path.Clean("/" + fields[2]); ; at = path.Dir(at) {
			text, _ := os.ReadFile(path.Join(root, at, name))
			most, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && most < math.MaxInt64/2 && (least == 0 || most < least) {
				least = most
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// connKey is the key of a request's *conns.Conn.
type connKey struct{}

// countBytes counts what requests hold.
func countBytes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*conns.Conn)
		if conn == nil {
			next.ServeHTTP(w, r)
			return
		}
		part := conn.Begin()
		defer part.End()
		size := requestBytes + len(r.RequestURI)
		for name, values := range r.Header {
			for _, value := range values {
				size += len(name) + len(value)
			}
		}
		if r.ProtoMajor > 1 {
			size += streamBytes
		}
		part.Add(int64(size))
		if r.ContentLength == 0 {
			part.Arrive()
		} else {
			r.Body = &countedBody{ReadCloser: r.Body, part: part, length: r.ContentLength}
		}
		next.ServeHTTP(w, r)
	})
}

// countedBody is a body that holds twice its length, since whoever reads all of it has had a
// smaller buffer before.
type countedBody struct {
	io.ReadCloser
	part   *conns.Part
	length int64 // -1 if it is not known, 0 when it is counted
	free   int64 // bytes that may come without being counted
}

// smallBody is a body that does not wait for room.
const smallBody = 4 << 10

func (b *countedBody) Read(p []byte) (int, error) {
	if b.length != 0 {
		b.free = b.length
		if b.length < 0 || b.length > httpapi.MaxBody {
			b.free = httpapi.MaxBody
		}
		b.length = 0
		if b.free <= smallBody {
			b.part.Add(2 * b.free)
		} else {
			b.part.Reserve(2 * b.free)
		}
	}
	n, err := b.ReadCloser.Read(p)
	if b.free -= int64(n); b.free < 0 {
		b.part.Add(-2 * b.free)
		b.free = 0
	}
	if errors.Is(err, io.EOF) {
		b.part.Arrive()
	}
	return n, err
}
