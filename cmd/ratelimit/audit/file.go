package audit

import (
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
)

const (
	// waiting is how many events may wait to be written. One more is lost: whoever sends requests
	// does not wait for a disk.
	waiting = 4096
	// closeTime is how long Close waits for a disk, or a pipe that nobody reads.
	closeTime = 2 * time.Second
)

// A File is a [Sink] of lines in a file, or in a stream. A file is opened to be appended to, and
// opened again when another one, or none, has its name, and at a SIGHUP, so that it can be renamed
// or cut at any time. A File is safe for concurrent use.
type File struct {
	path  string
	to    io.Writer // nil: the file is to be opened
	own   *os.File  // nil for a stream
	torn  bool      // a line was written in part
	log   *slog.Logger
	lines lograte.Limit
	lost  atomic.Int64

	queue   chan []byte
	hangups chan os.Signal
	closing chan struct{} // closed by Close
	done    chan struct{}
}

// Open opens a file, which is made with the mode 0600 if it is not there. The error is
// [readfile.ErrNotRegular] for what is no file, such as a pipe, in a [fs.PathError].
func Open(path string, log *slog.Logger) (*File, error) {
	f := newFile(path, log)
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	f.hangups = make(chan os.Signal, 1)
	signal.Notify(f.hangups, syscall.SIGHUP)
	go f.run()
	return f, nil
}

// Stream returns a File that writes to w.
func Stream(w io.Writer, log *slog.Logger) *File {
	f := newFile("", log)
	f.to = w
	go f.run()
	return f
}

func newFile(path string, log *slog.Logger) *File {
	return &File{path: path, log: log, queue: make(chan []byte, waiting),
		closing: make(chan struct{}), done: make(chan struct{})}
}

// Write queues a line. An event that finds no room, or comes after Close, is lost, and counted.
func (f *File) Write(_ *Event, line []byte) {
	select {
	case <-f.closing:
		f.lose(os.ErrClosed)
		return
	default:
	}
	select {
	case f.queue <- line:
	default:
		f.lose(errFull)
	}
}

var errFull = fmt.Errorf("%d events wait to be written", waiting)

// Lost returns how many events were not written.
func (f *File) Lost() int64 { return f.lost.Load() }

// Close writes the events that wait, for two seconds at most.
func (f *File) Close() {
	if f.hangups != nil {
		signal.Stop(f.hangups)
	}
	close(f.closing)
	select {
	case <-f.done:
	case <-time.After(closeTime):
		f.log.Error("events of the audit are lost", "error", "they cannot be written",
			"count", len(f.queue))
	}
}

// run is the only one that opens and writes.
func (f *File) run() {
	defer close(f.done)
	for {
		select {
		case <-f.hangups:
			f.close()
		case line := <-f.queue:
			f.append(line)
		case <-f.closing:
			for len(f.queue) > 0 {
				f.append(<-f.queue)
			}
			f.close()
			return
		}
	}
}

// append writes a line, or counts it as lost.
func (f *File) append(line []byte) {
	if err := f.write(line); err != nil {
		f.lose(err)
	}
}

// write writes a line, and nothing to a file that has another name by now.
func (f *File) write(line []byte) error {
	if f.own != nil && !f.named() {
		f.close()
	}
	if f.to == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.torn { // the reader of the file sees one broken line, and not two
		line = append([]byte{'\n'}, line...)
	}
	n, err := f.to.Write(line)
	if err != nil {
		f.torn = f.torn || n > 0
		f.close()
		return err
	}
	f.torn = false
	return nil
}

// named reports whether the name is still that of the open file.
func (f *File) named() bool {
	there, err := os.Stat(f.path)
	if err != nil {
		return false
	}
	own, err := f.own.Stat()
	return err == nil && os.SameFile(there, own)
}

func (f *File) open() error {
	// Opening a pipe waits for a reader.
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: f.path, Err: readfile.ErrNotRegular}
	}
	own, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.own, f.to = own, own
	return nil
}

// close closes the file, so that the next line opens it again.
func (f *File) close() {
	if f.own == nil {
		return
	}
	if err := f.own.Close(); err != nil {
		f.log.Error("closing the audit", "error", err)
	}
	f.own, f.to = nil, nil
}

func (f *File) lose(err error) {
	f.lost.Add(1)
	if ok, suppressed := f.lines.Pass(time.Now()); ok {
		f.log.Error("events of the audit are lost", "error", err, "suppressed", suppressed)
	}
}
