package httplimit_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit"
)

// TestUploads: the temporary files of an upload that a handler reads are removed, as they are
// without the middleware, and not before the handler returns.
func TestUploads(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir) // on Windows
	files := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		return len(entries)
	}
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
	limit := httplimit.New(claiming(one(limiter)))
	upload := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		if files() == 0 {
			t.Error("the upload is not in a file")
		}
	})
	counting := httplimit.New(claiming(one(limiter)),
		httplimit.WithCounting(func(int) bool { return true }))
	for name, h := range map[string]http.Handler{
		"without": upload, "limited": limit(upload), "twice": limit(counting(upload)),
	} {
		t.Run(name, func(t *testing.T) {
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			file, err := form.CreateFormFile("file", "name")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
			if err := form.Close(); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(h)
			res, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			server.Close() // it waits for the handler
			if n := files(); n != 0 {
				t.Errorf("%d files are left", n)
			}
		})
	}
}
