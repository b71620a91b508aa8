// Package loggen writes logs of made-up requests, for tests of replays.
package loggen

import (
	"bufio"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// Options say what a log is like.
type Options struct {
	Format   string // json, common or combined
	Seed     uint64
	Keys     int // clients; few of them make most requests
	Lines    int64
	Bytes    int64 // the log ends after so many; one of Lines and Bytes is 0
	Start    time.Time
	Interval time.Duration // between requests, on average
	Late     time.Duration // requests take up to this long, and are logged when they end
}

var (
	methods  = []string{"GET", "GET", "GET", "GET", "POST", "HEAD"}
	paths    = []string{"/", "/index.html", "/search?q=limits", "/login", "/api/items", "/logo.png"}
	statuses = []string{"200", "200", "200", "304", "404", "500"}
	agents   = []string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
			"Chrome/126.0.0.0 Safari/537.36",
		"curl/8.8.0",
	}
)

// generator makes requests.
type generator struct {
	Options
	random *rand.Rand
	now    time.Time
}

// Write writes a log. The same options write the same log.
func Write(w io.Writer, o Options) error {
	g := &generator{Options: o, random: rand.New(rand.NewPCG(o.Seed, 0)), now: o.Start}
	out := bufio.NewWriterSize(w, 1<<20)
	line, lines, written := []byte(nil), int64(0), int64(0)
	for lines < o.Lines || written < o.Bytes {
		switch o.Format {
		case "json":
			line = g.json(line[:0])
		case "common", "combined":
			line = g.access(line[:0])
		default:
			return errors.New("no such format")
		}
		n, err := out.Write(line)
		if err != nil {
			return err
		}
		lines, written = lines+1, written+int64(n)
	}
	return out.Flush()
}

// step moves time on and returns the start of the next request.
func (g *generator) step() time.Time {
	g.now = g.now.Add(time.Duration(g.random.ExpFloat64() * float64(g.Interval)))
	if g.Late == 0 {
		return g.now
	}
	return g.now.Add(-time.Duration(g.random.Float64() * float64(g.Late)))
}

// key returns the number of a client. Half of the requests choose a client evenly. The other half
// prefer low numbers (the logarithm is spread evenly), so a few clients make most requests.
func (g *generator) key() uint32 {
	if g.random.IntN(2) == 0 {
		return uint32(g.random.IntN(g.Keys))
	}
	return uint32(math.Pow(float64(g.Keys), g.random.Float64())) - 1
}

// client appends an address from the range for benchmarks, or from private networks if there are
// many clients.
func (g *generator) client(b []byte) []byte {
	k := g.key()
	first, second := byte(198), 18+byte(k>>16&1)
	if g.Keys > 1<<17 {
		first, second = 10, byte(k>>16)
	}
	for i, part := range [...]byte{first, second, byte(k >> 8), byte(k)} {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, uint64(part), 10)
	}
	return b
}

func (g *generator) pick(from []string) string { return from[g.random.IntN(len(from))] }

func (g *generator) access(b []byte) []byte {
	at := g.step()
	b = append(g.client(b), " - - ["...)
	b = at.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = append(b, g.pick(methods)...)
	b = append(b, ' ')
	b = append(b, g.pick(paths)...)
	b = append(b, ` HTTP/1.1" `...)
	b = append(b, g.pick(statuses)...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, 100+g.random.Int64N(20_000), 10)
	if g.Format == "combined" {
		b = append(b, ` "-" "`...)
		b = append(b, g.pick(agents)...)
		b = append(b, '"')
	}
	return append(b, '\n')
}

func (g *generator) json(b []byte) []byte {
	at := g.step()
	b = append(b, `{"time":"`...)
	b = at.AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
	b = append(b, `","level":"INFO","msg":"request","key":"`...)
	b = g.client(b)
	b = append(b, `","request":{"method":"`...)
	b = append(b, g.pick(methods)...)
	b = append(b, `","path":"`...)
	b = append(b, g.pick(paths)...)
	b = append(b, `"},"status":`...)
	b = append(b, g.pick(statuses)...)
	b = append(b, `,"tokens":`...)
	b = strconv.AppendInt(b, 1+g.random.Int64N(2000), 10)
	return append(b, "}\n"...)
}
