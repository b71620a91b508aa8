package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"

	"github.com/truewindow/ratelimit/driver"
)

// A merge reads several logs in the order of time. Each log by itself is read line by line, even if
// its times go back.
type merge struct {
	logs      []*mergedLog
	firstLine []byte // of all
}

// A mergedLog is a log whose parsed blocks are decided one after the other.
type mergedLog struct {
	*stream
	number  int // from 1; 0 if there is only one log
	parsed  <-chan *block
	current *block // nil at the beginning and at the end
	next    int    // index of its next arrival
	lines   int64  // in the blocks before
}

// newMerge begins to read logs, and sets the options that are empty.
func newMerge(ctx context.Context, logs []io.Reader, o *Options) (*merge, error) {
	m := new(merge)
	blocks := max(2, numBlocks/max(len(logs), 1))
	for i, log := range logs {
		l := &mergedLog{stream: newStream(ctx, log, blocks)}
		m.logs = append(m.logs, l)
		if len(logs) > 1 {
			l.number = i + 1
		}
	}
	given := *o
	for i, l := range m.logs {
		begin, err := l.begin()
		if err != nil {
			return nil, l.wrap(err)
		}
		own := given
		parser, err := newParser(&own, begin)
		if err != nil {
			return nil, l.wrap(err)
		}
		if i == 0 {
			*o = own
		} else if own.KeyField != o.KeyField {
			return nil, l.wrap(fmt.Errorf("%w options: the format is %s, that of the first log "+
				"%s; replay them one by one", driver.ErrInvalid, own.Format, o.Format))
		}
		if m.firstLine == nil {
			m.firstLine = bytes.Clone(firstLine(begin))
		}
		l.parsed = l.parse(parser)
	}
	return m, nil
}

// wrap says which log an error is about.
func (l *mergedLog) wrap(err error) error {
	if l.number == 0 {
		return err
	}
	return fmt.Errorf("log %d: %w", l.number, err)
}

// decide decides arrivals of the log that has the earliest, and reports whether there was one.
func (m *merge) decide(ctx context.Context, e *engine) (more bool, err error) {
	var first *mergedLog
	until := int64(math.MaxInt64) // the next arrival of another log
	for _, l := range m.logs {
		at, ok, err := l.peek(ctx, e)
		switch {
		case err != nil:
			return false, l.wrap(err)
		case !ok:
		case first == nil || at < first.at():
			if first != nil {
				until = min(until, first.at())
			}
			first = l
		default:
			until = min(until, at)
		}
	}
	if first == nil {
		return false, nil
	}
	for first.next < len(first.current.arrivals) && first.at() <= until {
		e.arrive(&first.current.arrivals[first.next])
		first.next++
	}
	return true, nil
}

func (l *mergedLog) at() int64 { return l.current.arrivals[l.next].at }

// peek returns the instant of the next arrival. It counts the lines of the blocks that it begins.
func (l *mergedLog) peek(ctx context.Context, e *engine) (at int64, ok bool, err error) {
	for l.parsed != nil && (l.current == nil || l.next == len(l.current.arrivals)) {
		if l.current != nil {
			l.recycle(l.current)
		}
		select {
		case <-ctx.Done():
			return 0, false, context.Cause(ctx)
		case l.current, ok = <-l.parsed:
			if !ok {
				l.current, l.parsed = nil, nil
				return 0, false, l.err
			}
			e.count(l)
			l.next = 0
		}
	}
	if l.current == nil {
		return 0, false, nil
	}
	return l.at(), true, nil
}
