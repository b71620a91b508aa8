package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Files of the pages, below the root of the repository.
const (
	tablesFile = "docs/benchmarks.txt"
	pageFile   = "docs/benchmarks.md"
	readmeFile = "README.md"
	chartsDir  = "docs/benchmarks"
)

// Benchmarks that the pages show.
const (
	exactMemory = "Exactness/memory"
	exactServer = "Exactness/server"
	oneKey      = "Memory/hot/admitted/cpus=1"
	oneKeyTwo   = "Memory/hot/admitted/cpus=2"
	manyKeys    = "Memory/100k-keys/uniform/cpus=2"
	heapOfKey   = "Keys/1M-keys/5-requests"
	commandTime = "Command/admitted/limit=100"
	loadMany    = "Load/10k-keys/callers=64"
	loadHot     = "Load/hot-key/callers=512"
	loadRefused = "Load/refused-key/callers=64"
	bytesOfKey  = "Bytes/limit=" // and the limit
)

// A library is a row of a table and a bar of a chart.
type library struct {
	entry     string // of the benchmarks
	name      string
	module    string // whose version the tables show; "" means this module or none
	algorithm string
}

func (l library) ours() bool { return strings.HasPrefix(l.entry, "ratelimit") }

var inProcess = []library{
	{"x-time-rate", "x/time/rate", "golang.org/x/time", "token bucket"},
	{"ratelimit", "this module", "", "exact log"},
	{"ratelimit-bucket", "this module", "", "GCRA"},
	{"ratelimit-fixed", "this module", "", "fixed window"},
	{"ulule", "ulule", "github.com/ulule/limiter/v3", "fixed window"},
	{"throttled", "throttled", "github.com/throttled/throttled/v2", "GCRA"},
	{"go-limiter", "go-limiter", "github.com/sethvargo/go-limiter", "fixed window"},
	{"httprate", "httprate", "github.com/go-chi/httprate", "sliding counter"},
	{"failsafe", "failsafe", "github.com/failsafe-go/failsafe-go", "fixed window"},
}

var onRedis = []library{
	{"zset", "zset", "", "exact log"},
	{"zset-rueidis", "zset, rueidis", "", "exact log"},
	{"ratelimit", "this module, go-redis", "", "exact log"},
	{"ratelimit-rueidis", "this module, rueidis", "", "exact log"},
	{"ratelimit-valkey", "this module, valkey-go", "", "exact log"},
	{"redis_rate", "redis_rate", "github.com/go-redis/redis_rate/v10", "GCRA"},
	{"ulule", "ulule", "github.com/ulule/limiter/v3", "fixed window"},
	{"throttled", "throttled", "github.com/throttled/throttled/v2", "GCRA, compare-and-swap"},
	{"rueidislimiter", "rueidislimiter", "github.com/redis/rueidis/rueidislimiter", "fixed window"},
	{"valkeylimiter", "valkeylimiter", "github.com/valkey-io/valkey-go/valkeylimiter",
		"fixed window"},
	{"httprate-redis", "httprate-redis", "github.com/go-chi/httprate-redis", "sliding counter"},
	{"go-redisstore", "go-redisstore", "github.com/sethvargo/go-redisstore", "fixed window"},
}

// inReadme returns the libraries on Redis that the README shows.
func inReadme() []library {
	shown := []string{"zset", "ratelimit", "ratelimit-rueidis", "redis_rate", "ulule",
		"rueidislimiter", "httprate-redis"}
	return slices.DeleteFunc(slices.Clone(onRedis), func(l library) bool {
		return !slices.Contains(shown, l.entry)
	})
}

// results are the tables that compare writes.
type results struct {
	facts map[string]string
	cells map[[3]string]string // by benchmark, entry and metric
}

func parseResults(text string) *results {
	r := &results{make(map[string]string), make(map[[3]string]string)}
	var header []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if fact, ok := strings.CutPrefix(line, "with "); ok {
			name, value, _ := strings.Cut(fact, " ")
			r.facts[name] = value
			continue
		}
		row := strings.Split(strings.Trim(line, "| "), " | ")
		switch {
		case line == "":
			header = nil
		case header == nil:
			header = row
			header[0], _, _ = strings.Cut(header[0], ", ") // the number of processors
		case len(row) == len(header):
			for i, cell := range row[1:] {
				r.cells[[3]string{header[0], row[0], header[i+1]}] = cell
			}
		}
	}
	return r
}

// value returns the median of a metric.
func (r *results) value(benchmark, entry, metric string) (float64, bool) {
	text, _, _ := strings.Cut(r.cells[[3]string{benchmark, entry, metric}], " ")
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// quotient returns the median of the quotients by the first entry, which itself has none.
func (r *results) quotient(benchmark, entry, metric string) (float64, bool) {
	cell := r.cells[[3]string{benchmark, entry, metric}]
	_, text, ok := strings.Cut(cell, " ×")
	if !ok {
		_, measured := r.value(benchmark, entry, metric)
		return 1, measured
	}
	text, _, _ = strings.Cut(text, " ")
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// A column is one comparison of the libraries.
type column struct {
	title, benchmark, metric string
	get                      func(r *results, benchmark, entry, metric string) (float64, bool)
	form                     func(float64) string
}

var (
	value, quotient = (*results).value, (*results).quotient

	mostMemory  = column{"most admitted ÷ limit", exactMemory, "most÷limit", value, figure}
	oneKeyTime  = column{"", oneKey, "ns/op", quotient, figure}
	manyKeyTime = column{"", manyKeys, "ns/op", quotient, figure}
	most        = column{"most admitted ÷ limit", exactServer, "most÷limit", value, figure}
	wrong       = column{"wrong refusals", exactServer, "wrong-%", value, inPercent}
	manyLoad    = column{"decisions/s, 64 callers, ÷ zset", loadMany, "decisions/s", quotient,
		figure}
	hotLoad = column{"", loadHot, "decisions/s", quotient, figure}
	keySize = column{"bytes of a key", bytesOfKey + "100", "B/key", value, whole}

	// The tables of pageFile have what its charts do not show.
	memoryColumns = []column{
		{"wrong refusals", exactMemory, "wrong-%", value, inPercent},
		{"one key, 2 CPUs", oneKeyTwo, "ns/op", quotient, figure},
		{"heap bytes of a key", heapOfKey, "heap-B/key", value, whole},
	}
	serverColumns = []column{
		wrong,
		{"command time", commandTime, "script-µs/op", quotient, figure},
		{"refused key", loadRefused, "decisions/s", quotient, figure},
		{"bytes of a key at 100", bytesOfKey + "100", "B/key", value, whole},
		{"at 1,000", bytesOfKey + "1000", "B/key", value, whole},
		{"at 10,000", bytesOfKey + "10000", "B/key", value, whole},
	}
)

// table returns a table in Markdown with a row for each library.
func (r *results) table(title string, libraries []library, columns []column) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", title)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, l := range libraries {
		name := l.name
		if l.ours() {
			name = "**" + name + "**"
		} else if v := r.facts[l.module]; v != "" {
			name += " " + v
		}
		fmt.Fprintf(&b, "| %s, %s |", name, l.algorithm)
		for _, c := range columns {
			text := "–"
			if v, ok := c.get(r, c.benchmark, l.entry, c.metric); ok {
				text = c.form(v)
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bars returns the bars of the libraries that a column has.
func (r *results) bars(libraries []library, c column) (bars []bar) {
	for _, l := range libraries {
		if v, ok := c.get(r, c.benchmark, l.entry, c.metric); ok {
			bars = append(bars, bar{l.name + ", " + l.algorithm, v, c.form(v), l.ours()})
		}
	}
	return bars
}

// lingerBars returns a group for each number of processes.
func (r *results) lingerBars() (groups []barGroup) {
	for _, processes := range []string{"1", "8", "100"} {
		benchmark := "Linger/processes=" + processes + "/rate=5000"
		g := barGroup{title: processes + " processes"}
		if processes == "1" {
			g.title = "1 process"
		}
		for _, linger := range []string{"0s", "1ms", "3ms"} {
			scripts, ok := r.value(benchmark, linger, "commands/op")
			p50, _ := r.value(benchmark, linger, "p50-µs")
			if ok {
				text := fmt.Sprintf("%s scripts, p50 %.1f ms", figure(scripts), p50/1000)
				g.bars = append(g.bars, bar{"Linger " + linger, scripts, text, linger != "0s"})
			}
		}
		groups = append(groups, g)
	}
	return groups
}

func (r *results) charts() map[string]chart {
	return map[string]chart{
		"exactness.svg": {
			title: "Most admitted in any rolling window ÷ limit",
			notes: []string{"1 is the limit. What a library admits above it is red."},
			mark:  "limit", over: true,
			groups: []barGroup{
				{"on Redis", sorted(r.bars(onRedis, most), false)},
				{"in process", sorted(r.bars(inProcess, mostMemory), false)},
			},
		},
		"redis.svg": {
			title: "On Redis, 10,000 keys: decisions a second ÷ zset",
			notes: []string{"64 callers. zset is the usual exact log on Redis. Longer is faster."},
			mark:  "zset", groups: []barGroup{{"", sorted(r.bars(onRedis, manyLoad), true)}},
		},
		"hot-key.svg": {
			title: "On Redis, one key: decisions a second ÷ zset",
			notes: []string{"512 callers. Longer is faster."},
			mark:  "zset", groups: []barGroup{{"", sorted(r.bars(onRedis, hotLoad), true)}},
		},
		"memory.svg": {
			title: "In process: time of a decision ÷ x/time/rate",
			notes: []string{"Shorter is faster."},
			mark:  "x/time/rate",
			groups: []barGroup{
				{"one key, one CPU", sorted(r.bars(inProcess, oneKeyTime), false)},
				{"100,000 keys, two CPUs", sorted(r.bars(inProcess, manyKeyTime), false)},
			},
		},
		"linger.svg": {
			title: "Requests that linger: scripts a decision, and median latency",
			notes: []string{"One key, 5,000 calls a second of all processes together.",
				"Fewer scripts are less work for the server; each decision takes longer."},
			groups: r.lingerBars(),
		},
	}
}

// measured says when and on what the figures were measured.
func (r *results) measured() string {
	rounds := r.facts["rounds"] + " rounds"
	if rounds == "1 rounds" {
		rounds = "one round"
	}
	return fmt.Sprintf("Measured on %s in %s with Go %s and %s on %s CPUs.\n", r.facts["date"],
		rounds, r.facts["go"], r.facts["server"], r.facts["cpus"])
}

// absolute is what the quotients do not show. It has nothing that was not measured.
func (r *results) absolute() (text string) {
	reference, ok := r.value(loadMany, onRedis[0].entry, "decisions/s")
	var ours []float64
	for _, l := range onRedis {
		if v, ok := r.value(loadMany, l.entry, "decisions/s"); ok && l.ours() {
			ours = append(ours, v)
		}
	}
	if ok && len(ours) > 0 {
		text += fmt.Sprintf("On 10,000 keys zset made %s decisions a second, this module %s to "+
			"%s.\n", whole(reference), whole(slices.Min(ours)), whole(slices.Max(ours)))
	}
	const cached = "ratelimit-rueidis-cached"
	if v, ok := r.value(loadRefused, cached, "decisions/s"); ok {
		q, _ := r.quotient(loadRefused, cached, "decisions/s")
		text += fmt.Sprintf("With cached refusals it made %s on a refused key, %s times as many "+
			"as zset.\n", whole(v), figure(q))
	}
	if v, ok := r.value(loadHot, "throttled", "failed"); ok {
		text += fmt.Sprintf("With 512 callers on one key %.0f %% of the calls of throttled "+
			"failed.\n", 100*v)
	}
	return text
}

// drawPages returns the charts, and the pages with new tables, by their paths below root.
func drawPages(root string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, tablesFile))
	if err != nil {
		return nil, err
	}
	r := parseResults(string(text))
	files := make(map[string]string)
	for name, chart := range r.charts() {
		for _, g := range chart.groups {
			if len(g.bars) == 0 {
				return nil, fmt.Errorf("%s has no figures for %s %s", tablesFile, name, g.title)
			}
		}
		files[chartsDir+"/"+name] = chart.svg()
	}
	for _, t := range []struct {
		libraries []library
		columns   []column
	}{{inProcess, memoryColumns}, {onRedis, serverColumns}} {
		for _, c := range t.columns {
			if len(r.bars(t.libraries, c)) == 0 {
				return nil, fmt.Errorf("%s has no figures for %s", tablesFile, c.benchmark)
			}
		}
	}
	for _, s := range []struct{ page, name, text string }{
		{pageFile, "measured", r.measured()},
		{pageFile, "in process", r.table("in process", inProcess, memoryColumns)},
		{pageFile, "on Redis", r.table("on Redis", onRedis, serverColumns) + "\n" + r.absolute()},
		{readmeFile, "compared", r.measured() + "\n" + r.table("on Redis", inReadme(),
			[]column{most, wrong, manyLoad, keySize})},
	} {
		if files[s.page] == "" {
			text, err := os.ReadFile(filepath.Join(root, s.page))
			if err != nil {
				return nil, err
			}
			files[s.page] = string(text)
		}
		if files[s.page], err = replaced(files[s.page], s.name, s.text); err != nil {
			return nil, fmt.Errorf("%s: %w", s.page, err)
		}
	}
	return files, nil
}

// replaced returns a page with other text between the marks of the name.
func replaced(page, name, text string) (string, error) {
	begin, end := "<!-- "+name+": written by make compare -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok1 := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("there are no marks of %q", name)
	}
	return before + begin + "\n" + text + "\n" + end + after, nil
}

// figure returns a number with about three digits.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.01:
		return strconv.FormatFloat(v, 'g', 1, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return whole(v)
}

// whole returns a rounded number, with commas between thousands.
func whole(v float64) string {
	text := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func inPercent(v float64) string { return strings.TrimSuffix(figure(v), ".00") + " %" }
