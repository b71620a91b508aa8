package daemon

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/internal/replay"
)

// A replayLog is a log that counts the bytes read from it.
type replayLog struct {
	io.ReadCloser
	size int64 // 0 if unknown
	read atomic.Int64
}

// openLog opens a file, or standard input for "-".
func openLog(name string) (*replayLog, error) {
	if name == "-" {
		return &replayLog{ReadCloser: os.Stdin}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	l := &replayLog{ReadCloser: f}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		l.size = info.Size()
	}
	return l, nil
}

func (l *replayLog) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	l.read.Add(int64(n))
	return n, err
}

// showProgress writes a line every second, or redraws one where w is a terminal, until done is
// called.
func showProgress(w io.Writer, log *replayLog, p *replay.Progress) (done func()) {
	form := "%s\n"
	if isTerminal(w) {
		form = "\r\x1b[K%s"
	}
	start := time.Now()
	show := func() {
		fmt.Fprintf(w, form, replayProgress(log, p.Lines.Load(), time.Since(start)))
	}
	ticker, stop, stopped := time.NewTicker(time.Second), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ticker.C:
				show()
			case <-stop:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(stop)
		<-stopped
		show()
		if isTerminal(w) {
			fmt.Fprintln(w)
		}
	}
}

func replayProgress(log *replayLog, lines int64, took time.Duration) string {
	part := ""
	if log.size > 0 {
		part = fmt.Sprintf("%3d %%  ", min(100, 100*log.read.Load()/log.size))
	}
	return fmt.Sprintf("%s%.1f MB, %d lines, %.0f lines/s", part,
		float64(log.read.Load())/1e6, lines, float64(lines)/max(took.Seconds(), 1e-3))
}
