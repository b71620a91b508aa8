package replay

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/cmd/internal/terminal"
)

// logFiles count the bytes read from them.
type logFiles struct {
	files []*os.File
	size  int64 // 0 if unknown
	read  atomic.Int64
}

// openLogs opens files, of which "-" is standard input. If one cannot be opened, those that were
// are returned with the error.
func openLogs(names []string) (*logFiles, error) {
	l := new(logFiles)
	regular := true
	for _, name := range names {
		f := os.Stdin
		if name != "-" {
			var err error
			if f, err = os.Open(name); err != nil {
				return l, err
			}
		}
		l.files = append(l.files, f)
		info, err := f.Stat()
		if regular = regular && err == nil && info.Mode().IsRegular(); regular {
			l.size += info.Size()
		} else {
			l.size = 0
		}
	}
	return l, nil
}

func (l *logFiles) readers() (readers []io.Reader) {
	for _, f := range l.files {
		readers = append(readers, io.TeeReader(f, l))
	}
	return readers
}

// Write counts what was read.
func (l *logFiles) Write(p []byte) (int, error) {
	l.read.Add(int64(len(p)))
	return len(p), nil
}

func (l *logFiles) close() {
	for _, f := range l.files {
		_ = f.Close()
	}
}

// showProgress writes a line every second, or redraws one where w is a terminal, until done is
// called.
func showProgress(w io.Writer, logs *logFiles, p *Progress) (done func()) {
	form := "%s\n"
	if terminal.Is(w) {
		form = "\r\x1b[K%s"
	}
	start := time.Now()
	show := func() {
		fmt.Fprintf(w, form, progressLine(logs, p.Lines.Load(), time.Since(start)))
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
		if terminal.Is(w) {
			fmt.Fprintln(w)
		}
	}
}

func progressLine(logs *logFiles, lines int64, took time.Duration) string {
	part := ""
	if logs.size > 0 {
		part = fmt.Sprintf("%3d %%  ", min(100, 100*logs.read.Load()/logs.size))
	}
	return fmt.Sprintf("%s%.1f MB, %d lines, %.0f lines/s", part,
		float64(logs.read.Load())/1e6, lines, float64(lines)/max(took.Seconds(), 1e-3))
}
