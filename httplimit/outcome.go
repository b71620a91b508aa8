package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/truewindow/ratelimit"
)

// statusClientLeft is for a handler that wrote nothing because the client left. No RFC has it;
// nginx does.
const statusClientLeft = 499

// serveReserved calls next and settles the reservation when that returns or panics.
func (m *middleware) serveReserved(
	w http.ResponseWriter, r *http.Request, reservation *ratelimit.Reservation,
) {
	keep, returned := true, false
	var seen *recorder
	defer func() {
		// Here too, since counts may panic.
		defer func() { settle(r.Context(), reservation, keep) }()
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

// settle drops the error: the observers of the limiters have it, and the answer has been given.
func settle(ctx context.Context, reservation *ratelimit.Reservation, keep bool) {
	switch {
	case reservation.Result().Source == ratelimit.SourceOpen:
		// Nothing was recorded. A Commit would ask a store again that was away a moment ago.
	case keep:
		_ = reservation.Commit(ctx)
	default:
		_ = reservation.Cancel(ctx)
	}
}

// recorder is a ResponseWriter that notes the status.
type recorder struct {
	http.ResponseWriter
	status int // 0 as long as there is none
}

// record returns a recorder on w, and a ResponseWriter on it that has those optional methods of the
// standard library's servers that w has. [http.ResponseController] finds all others.
func record(w http.ResponseWriter) (*recorder, http.ResponseWriter) {
	seen := &recorder{ResponseWriter: w}
	flusher, flushes := w.(http.Flusher)
	hijacker, hijacks := w.(http.Hijacker)
	readerFrom, reads := w.(io.ReaderFrom)
	switch {
	case flushes && hijacks && reads: // HTTP/1
		return seen, http1Recorder{flushRecorder{seen, flusher}, hijacker, readerFrom}
	case flushes: // HTTP/2
		return seen, flushRecorder{seen, flusher}
	}
	return seen, seen
}

func (w *recorder) note(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
}

// outcome returns the status of the answer.
func (w *recorder) outcome(ctx context.Context, returned bool) int {
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
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

type flushRecorder struct {
	*recorder
	flusher http.Flusher
}

func (w flushRecorder) Flush() {
	w.note(http.StatusOK)
	w.flusher.Flush()
}

// FlushError is for [http.ResponseController], which would otherwise get no error from Flush.
func (w flushRecorder) FlushError() error {
	w.note(http.StatusOK)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

type http1Recorder struct {
	flushRecorder
	hijacker   http.Hijacker
	readerFrom io.ReaderFrom
}

func (w http1Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.hijacker.Hijack()
	if err == nil {
		w.note(http.StatusSwitchingProtocols)
	}
	return conn, buf, err
}

// ReadFrom keeps what the server has for files, such as sendfile.
func (w http1Recorder) ReadFrom(src io.Reader) (int64, error) {
	w.note(http.StatusOK)
	return w.readerFrom.ReadFrom(src)
}
