package replay

// timeline counts events in intervals of equal length. It uses the shortest of the widths with
// which there are at most maxIntervals, so intervals grow as time goes on. It has several series
// over the same intervals.
type timeline struct {
	width  int // index of widths
	from   int64
	end    int64 // of the last interval, which holds now
	series [][]int64
	last   int // index of the interval of now
}

const maxIntervals = 4096

// widths are in microseconds. Each is a multiple of the one before.
var widths = func() []int64 {
	const millisecond, second, minute, hour, day = 1e3, 1e6, 60e6, 3600e6, 24 * 3600e6
	w := []int64{
		millisecond, 5 * millisecond, 10 * millisecond, 50 * millisecond, 100 * millisecond,
		500 * millisecond, second, 5 * second, 10 * second, 30 * second, minute, 5 * minute,
		10 * minute, 30 * minute, hour, 2 * hour, 6 * hour, 12 * hour, day,
	}
	for w[len(w)-1] < maxInstant {
		w = append(w, 2*w[len(w)-1])
	}
	return w
}()

// begin sets the first instant.
func (l *timeline) begin(at int64) {
	l.from = at - at%widths[0]
	l.end = l.from + widths[0]
	for i := range l.series {
		l.series[i] = []int64{0}
	}
}

// advance moves now on.
func (l *timeline) advance(at int64) {
	if at < l.end {
		return
	}
	for (at-l.from)/widths[l.width] >= maxIntervals {
		l.coarsen()
	}
	w := widths[l.width]
	l.last = int((at - l.from) / w)
	l.end = l.from + int64(l.last+1)*w
	for i, s := range l.series {
		for len(s) <= l.last {
			s = append(s, 0)
		}
		l.series[i] = s
	}
}

// count counts an event of a series now.
func (l *timeline) count(series int) { l.series[series][l.last]++ }

// coarsen changes to the next width.
func (l *timeline) coarsen() {
	old := widths[l.width]
	l.width++
	w := widths[l.width]
	from := l.from - l.from%w
	for i, s := range l.series {
		for j, n := range s {
			to := int((l.from + int64(j)*old - from) / w)
			s[j] = 0
			s[to] += n // to <= j
		}
		l.series[i] = s[:(l.from+int64(len(s)-1)*old-from)/w+1]
	}
	l.last = len(l.series[0]) - 1
	l.from, l.end = from, from+int64(l.last+1)*w
}

// atMost returns a copy with at most the given number of intervals, which is 2 or more.
func (l *timeline) atMost(intervals int) timeline {
	c := *l
	c.series = make([][]int64, len(l.series))
	for i, s := range l.series {
		c.series[i] = append([]int64(nil), s...)
	}
	for len(c.series[0]) > intervals {
		c.coarsen()
	}
	return c
}
