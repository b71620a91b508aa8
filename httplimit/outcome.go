package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/truewindow/ratelimit/edge"
)

// statusClientLeft is the status of a handler that wrote nothing before the request's context
// ended. It is nginx's; no RFC defines it.
const statusClientLeft = 499

// serveReserved calls next, and settles the call when next returns or panics.
func (m *middleware) serveReserved(w http.ResponseWriter, r *http.Request, call *edge.Call) {
	keep, returned := true, false
	var seen *statusRecorder
	defer func() {
		// Deferred again, because counts may panic.
		defer func() { call.Settle(r.Context(), keep) }()
		if seen != nil {
			keep = m.counts(seen.outcome(r.Context(), returned))
		}
	}()
	if m.counts != nil {
		seen, w = record(w)
	}
	m.next.ServeHTTP(w, r)
	returned = true
}

// statusRecorder is a ResponseWriter that notes the status.
type statusRecorder struct {
	http.ResponseWriter
	status int // 0 as long as there is none
}

// record returns a statusRecorder around w, and a ResponseWriter around that. The ResponseWriter
// has the optional methods that w has, as far as servers of the standard library have them;
// [http.ResponseController] finds all others. An [io.ReaderFrom] is kept only for HTTP/1, where it
// has a use.
func record(w http.ResponseWriter) (*statusRecorder, http.ResponseWriter) {
	seen := &statusRecorder{ResponseWriter: w}
	flusher, flushes := w.(http.Flusher)
	hijacker, hijacks := w.(http.Hijacker)
	readerFrom, reads := w.(io.ReaderFrom)
	pusher, pushes := w.(http.Pusher)
	f, h, r := flushing{seen, flusher}, hijacking{seen, hijacker}, reading{seen, readerFrom}
	switch {
	case flushes && hijacks && reads: // HTTP/1
		return seen, struct {
			*statusRecorder
			flushing
			hijacking
			reading
		}{seen, f, h, r}
	case flushes && hijacks:
		return seen, struct {
			*statusRecorder
			flushing
			hijacking
		}{seen, f, h}
	case hijacks:
		return seen, struct {
			*statusRecorder
			hijacking
		}{seen, h}
	case flushes && pushes: // HTTP/2
		return seen, struct {
			*statusRecorder
			flushing
			http.Pusher
		}{seen, f, pusher}
	case flushes:
		return seen, struct {
			*statusRecorder
			flushing
		}{seen, f}
	}
	return seen, seen
}

func (w *statusRecorder) note(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

// outcome returns the status of the answer.
func (w *statusRecorder) outcome(ctx context.Context, returned bool) int {
	switch {
	case w.status != 0:
		return w.status
	case !returned:
		return http.StatusInternalServerError
	case ctx.Err() != nil:
		return statusClientLeft
	}
	return http.StatusOK
}

// Unwrap is for [http.ResponseController].
func (w *statusRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusRecorder) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusRecorder) Write(p []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// flushing has the methods of a ResponseWriter that flushes.
type flushing struct {
	seen    *statusRecorder
	flusher http.Flusher
}

func (w flushing) Flush() {
	w.seen.note(http.StatusOK)
	w.flusher.Flush()
}

// FlushError is for [http.ResponseController], which would otherwise get no error from Flush.
func (w flushing) FlushError() error {
	w.seen.note(http.StatusOK)
	return http.NewResponseController(w.seen.ResponseWriter).Flush()
}

// hijacking has the method of a ResponseWriter that hands its connection over.
type hijacking struct {
	seen     *statusRecorder
	hijacker http.Hijacker
}

func (w hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.hijacker.Hijack()
	if err == nil {
		w.seen.note(http.StatusSwitchingProtocols)
	}
	return conn, buf, err
}

// reading keeps the server's faster way to send files, such as sendfile.
type reading struct {
	seen       *statusRecorder
	readerFrom io.ReaderFrom
}

// ReadFrom notes no status if there is nothing to read: the handler can then still write another.
func (w reading) ReadFrom(src io.Reader) (int64, error) {
	n, err := w.readerFrom.ReadFrom(src)
	if n > 0 {
		w.seen.note(http.StatusOK)
	}
	return n, err
}
