package faults

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// Sizes of the picture in pixels.
const (
	pictureWidth = 800
	faultsTop    = 124 // of the first fault
	faultHeight  = 20
	sharesLeft   = 340 // of the first cell
	shareWidth   = 46
	clientGap    = 10
)

const pictureStyle = `
    text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif }
    text { fill: #1f2328 }
    .card { fill: #ffffff; stroke: #d1d9e0 }
    .title { font-size: 18px; font-weight: 600 }
    .client { font-size: 13px; font-weight: 600 }
    .note { fill: #59636e }
    .outcome { fill: #59636e; font-size: 11px }
    .answered { fill: #218bff }
    .unavailable { fill: #bf8700 }
    .unknown { fill: #ff5a52 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .card { fill: #0d1117; stroke: #3d444d }
      .note, .outcome { fill: #9198a1 }
    }
`

// shareNames are columns of the file and classes of the cells.
var shareNames = [3]string{"answered", "unavailable", "unknown"}

// A faultShare is the calls of one client in one fault, by outcome.
type faultShare struct {
	fault, client string
	calls         [3]int // in the order of shareNames
}

// percent returns the share of outcome k.
func (s faultShare) percent(k int) float64 {
	return 100 * float64(s.calls[k]) / float64(s.calls[0]+s.calls[1]+s.calls[2])
}

// sharesOf adds up the records of a faultTable for each fault and client, over all servers.
func sharesOf(records [][]string) (shares []faultShare, err error) {
	columns := make(map[string]int)
	for i, name := range records[0] {
		columns[name] = i
	}
	for _, record := range records[1:] {
		of := faultShare{fault: record[columns["fault"]], client: record[columns["client"]]}
		k := slices.IndexFunc(shares, func(s faultShare) bool {
			return s.fault == of.fault && s.client == of.client
		})
		if k < 0 {
			k, shares = len(shares), append(shares, of)
		}
		for i, name := range shareNames {
			column, ok := columns[name]
			if !ok {
				return nil, fmt.Errorf("there is no column %s", name)
			}
			n, err := strconv.Atoi(record[column])
			if err != nil {
				return nil, err
			}
			shares[k].calls[i] += n
		}
	}
	return shares, nil
}

// drawFaults draws the file of a faultTable as SVG, for light and dark backgrounds: for each fault
// and client the share of the calls with each outcome, as a number and as the strength of a color.
func drawFaults(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	records, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, err
	}
	shares, err := sharesOf(records)
	if err != nil {
		return nil, err
	}
	var faults, libs []string
	for _, s := range shares {
		if !slices.Contains(faults, s.fault) {
			faults = append(faults, s.fault)
		}
		if !slices.Contains(libs, s.client) {
			libs = append(libs, s.client)
		}
	}
	left := func(lib string, outcome int) int {
		group := 3*shareWidth + clientGap
		return sharesLeft + slices.Index(libs, lib)*group + outcome*shareWidth
	}
	height := faultsTop + len(faults)*faultHeight + 16

	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(class string, x, y int, anchor, text string) {
		line(`<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`,
			class, x, y, anchor, escape(text))
	}
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`role="img" aria-labelledby="title desc">`, pictureWidth, height, pictureWidth, height)
	line(`<title id="title">What calls get during a fault</title>`)
	line(`<desc id="desc">For each fault and client: the percentages of calls that the server ` +
		`answered, that failed with ErrUnavailable, and that failed with ErrOutcomeUnknown. ` +
		`The numbers are in ` + faultsFile + `.</desc>`)
	line("<style>%s</style>", pictureStyle)
	line(`<rect class="card" x=".5" y=".5" width="%d" height="%d" rx="8"/>`,
		pictureWidth-1, height-1)
	text("title", 24, 34, "start", "What calls get during a fault")
	text("note", 24, 54, "start", "Percent of the calls. answer: the server decided; "+
		"error: ErrUnavailable, nothing was recorded;")
	text("note", 24, 70, "start", "unknown: ErrOutcomeUnknown, the call may have been recorded")
	for _, lib := range libs {
		text("client", left(lib, 1)+shareWidth/2, faultsTop-28, "middle", lib)
		for i, name := range [3]string{"answer", "error", "unknown"} {
			text("outcome", left(lib, i)+shareWidth/2, faultsTop-8, "middle", name)
		}
	}
	for i, fault := range faults {
		text("name", 24, faultsTop+i*faultHeight+14, "start", fault)
	}
	for _, s := range shares {
		top := faultsTop + slices.Index(faults, s.fault)*faultHeight
		for k, class := range shareNames {
			if s.calls[k] == 0 {
				continue
			}
			x, percent := left(s.client, k), s.percent(k)
			line(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" fill-opacity="%.2f"/>`,
				class, x+1, top+1, shareWidth-2, faultHeight-2, 0.1+0.6*percent/100)
			text("share", x+shareWidth/2, top+14, "middle", inPercent(percent))
		}
	}
	line("</svg>")
	return b.Bytes(), nil
}

// inPercent rounds a share, but not to none or to all.
func inPercent(share float64) string {
	switch {
	case share > 0 && share < 1:
		return "< 1"
	case share > 99 && share < 100:
		return "> 99"
	}
	return strconv.FormatFloat(share, 'f', 0, 64)
}

func escape(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
