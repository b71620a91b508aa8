package replay

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

const (
	blockSize = 256 << 10
	maxLine   = 1 << 20 // a longer line is rejected
	maxKey    = 1 << 10 // bytes, as in the daemon
	numBlocks = 6       // blocks of a log that are read, parsed or decided at a time
)

// decompressed returns a reader of the data of r, decompressed if that is gzip or bzip2.
func decompressed(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, blockSize)
	magic, _ := b.Peek(4) // a later Read returns the same error
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, []byte("BZh")):
		return bzip2.NewReader(b), nil
	}
	if problem := encoding(magic); problem != "" {
		return nil, fmt.Errorf("%w options: %s", driver.ErrInvalid, problem)
	}
	return b, nil
}

// A block is a number of whole lines, with what a parser has made of them.
type block struct {
	data    []byte
	cut     []byte // the lines, a part of data
	tooLong int64  // lines before them that were too long

	lines    int64 // all of them
	arrivals []arrival
	unread   []unread
}

// An arrival is a line that was parsed.
type arrival struct {
	at    int64 // µs since the Unix epoch
	units int64
	key   []byte // mostly a part of the block
}

// An unread line is one that was rejected.
type unread struct {
	line   int64 // in its block, from 1
	reason error
	text   []byte
}

// A stream reads blocks in a goroutine, and parses them in another one.
type stream struct {
	ctx    context.Context
	reader io.Reader
	free   chan *block
	read   chan *block
	err    error // of reading; set before read is closed
	begun  *block
}

func newStream(ctx context.Context, r io.Reader, blocks int) *stream {
	s := &stream{ctx: ctx, reader: r,
		free: make(chan *block, blocks), read: make(chan *block, blocks)}
	for range blocks {
		s.free <- new(block)
	}
	go s.fill()
	return s
}

// begin returns the first lines, or nil if there are none.
func (s *stream) begin() ([]byte, error) {
	select {
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case b, ok := <-s.read:
		if !ok {
			return nil, errors.Join(s.err, context.Cause(s.ctx))
		}
		s.begun = b
		return b.cut, nil
	}
}

// recycle takes back a block that is not used any more.
func (s *stream) recycle(b *block) { s.free <- b } // has room for all

// next returns a block to write to, or nil when ctx has ended.
func (s *stream) next() *block {
	select {
	case <-s.ctx.Done():
		return nil
	case b := <-s.free:
		return b
	}
}

// fill reads until the end, an error or the end of ctx.
func (s *stream) fill() {
	defer close(s.read)
	if s.reader, s.err = decompressed(s.reader); s.err != nil {
		return
	}
	var rest []byte // of the block before: a line that has not ended
	skipping := false
	tooLong := int64(0)
	for {
		b := s.next()
		if b == nil {
			return
		}
		b.data = append(b.data[:0], rest...)
		ended := s.readInto(b)
		if skipping {
			b.data, skipping = afterLine(b.data)
		}
		end := bytes.LastIndexByte(b.data, '\n') + 1
		if ended {
			end = len(b.data)
		}
		b.cut, rest = b.data[:end], b.data[end:]
		b.tooLong, tooLong = tooLong, 0
		if len(rest) > maxLine {
			rest, skipping, tooLong = nil, true, 1
		}
		rest = bytes.Clone(rest) // b belongs to the parser from now on
		s.read <- b              // has room for all
		if ended {
			return
		}
	}
}

// readInto appends a block of data to b and reports whether it was the last.
func (s *stream) readInto(b *block) (ended bool) {
	b.data = slices.Grow(b.data, blockSize)
	for space := b.data[len(b.data):cap(b.data)]; len(space) > 0; {
		n, err := s.reader.Read(space)
		n = withoutNULs(space[:n])
		b.data, space = b.data[:len(b.data)+n], space[n:]
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.err = err
			}
			return true
		}
	}
	return false
}

// withoutNULs leaves one NUL of each sequence in b, and returns the length of the rest. Logs that
// are truncated while a server writes to them begin with as many as they were long.
func withoutNULs(b []byte) int {
	if bytes.IndexByte(b, 0) < 0 {
		return len(b)
	}
	return len(slices.CompactFunc(b, func(x, y byte) bool { return x == 0 && y == 0 }))
}

// cleaned returns a line without what is not its text: the end, NULs and what stands before them,
// a byte-order mark, and colours of a terminal.
func cleaned(line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n\x00")
	if i := bytes.LastIndexByte(line, 0); i >= 0 {
		line = line[i+1:]
	}
	line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	if bytes.IndexByte(line, '\x1b') < 0 {
		return line
	}
	kept := make([]byte, 0, len(line))
	for i := 0; i < len(line); i++ {
		if n := colour(line[i:]); n > 0 {
			i += n - 1
		} else {
			kept = append(kept, line[i])
		}
	}
	return kept
}

// colour returns the length of the sequence at the start of b that sets a colour, or 0.
func colour(b []byte) int {
	if !bytes.HasPrefix(b, []byte("\x1b[")) {
		return 0
	}
	for i, c := range b[2:] {
		switch {
		case c == 'm':
			return i + 3
		case c != ';' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}

// afterLine returns what follows the first line, and whether that line has not ended yet.
func afterLine(data []byte) (rest []byte, unended bool) {
	i := bytes.IndexByte(data, '\n')
	if i < 0 {
		return data[:0], true
	}
	return data[i+1:], false
}

// parse returns a channel of the parsed blocks, in their order.
func (s *stream) parse(p parser) <-chan *block {
	parsed := make(chan *block, cap(s.free))
	go func() {
		defer close(parsed)
		if s.begun != nil {
			s.begun.parse(p)
			parsed <- s.begun
		}
		for b := range s.read {
			b.parse(p)
			parsed <- b
		}
	}()
	return parsed
}

// parse reads the lines of b. Blank ones count as lines and are neither arrivals nor unread.
func (b *block) parse(p parser) {
	b.lines, b.arrivals, b.unread = b.tooLong, b.arrivals[:0], b.unread[:0]
	for line := range b.tooLong {
		b.unread = append(b.unread, unread{line + 1, errTooLong, nil})
	}
	for rest := b.cut; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		b.lines++
		line = cleaned(line)
		n := len(b.arrivals)
		b.arrivals = append(b.arrivals, arrival{}) // a variable would be allocated for each line
		err := p.parse(line, &b.arrivals[n])
		if err == nil && len(b.arrivals[n].key) > maxKey {
			err = errLongKey
		}
		if err != nil {
			b.arrivals = b.arrivals[:n]
			if !errors.Is(err, errBlank) {
				b.unread = append(b.unread, unread{b.lines, err, line})
			}
		}
	}
}
