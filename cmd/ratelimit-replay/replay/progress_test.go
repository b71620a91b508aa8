package replay

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestProgressLine(t *testing.T) {
	for _, tt := range []struct {
		size, read, lines int64
		took              time.Duration
		want              string
	}{
		{0, 2_000_000, 1000, time.Second, "2.0 MB, 1000 lines, 1000 lines/s"},
		{4_000_000, 2_000_000, 3000, 2 * time.Second, " 50 %  2.0 MB, 3000 lines, 1500 lines/s"},
		{1, 2, 0, 0, "100 %  0.0 MB, 0 lines, 0 lines/s"},
	} {
		log := &logFiles{size: tt.size}
		log.read.Store(tt.read)
		if got := progressLine(log, tt.lines, tt.took); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestProgressIsShownEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, p := &logFiles{size: 100}, new(Progress)
		var w bytes.Buffer
		done := showProgress(&w, log, p)
		log.read.Store(50)
		p.Lines.Store(7)
		time.Sleep(1500 * time.Millisecond) // of synthetic time
		log.read.Store(100)
		done()
		const want = " 50 %  0.0 MB, 7 lines, 7 lines/s\n100 %  0.0 MB, 7 lines, 5 lines/s\n"
		if w.String() != want {
			t.Errorf("got %q", &w)
		}
	})
}
