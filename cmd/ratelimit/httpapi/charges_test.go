package httpapi

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestBlocksAndCallsEnd: the longest block and the longest hold of a call in flight end, and no
// charge makes them longer.
func TestBlocksAndCallsEnd(t *testing.T) {
	s := fileScene(t, "limits:\n"+
		"  - {name: calls, when: {of: calls}, key: [key], max: 1, algorithm: in-flight}\n"+
		"  - {name: blocked, when: {of: blocked}, key: [key], max: 1h, algorithm: block}\n")
	const calls = `{"descriptor":{"of":"calls","key":"a"},"hold_ms":%d}`
	const blocked = `{"descriptor":{"of":"blocked","key":"a"}}`
	settle := id(1, `"used":1099511627776`)
	s.play(
		step{path: "/v1/block", body: `{"limit":"blocked","key":"a","for_ms":1099511627776}`,
			status: 422, typ: "ErrExceedsLimit"},
		step{path: "/v1/block", status: 200,
			body: `{"limit":"blocked","key":"a","for_ms":3600000}`},
		step{path: "/v1/force", body: `{"limit":"blocked","key":"a","n":1099511627776}`,
			status: 422, typ: "wrong-kind"},
		step{path: "/v1/decide", body: fmt.Sprintf(calls, 16*60_000), status: 200},
		step{path: "/v1/settle", body: settle, status: 422, typ: "wrong-kind"},
		step{path: "/v1/force", body: `{"limit":"calls","key":"a","n":1099511627776}`,
			status: 422, typ: "wrong-kind"},
		step{path: "/v1/decide", body: fmt.Sprintf(calls, 0), status: 429},
		step{path: "/v1/decide", body: fmt.Sprintf(calls, 0), status: 200,
			advance: 18 * time.Minute}, // an eighth more
		step{path: "/v1/decide", body: blocked, status: 429},
		step{path: "/v1/decide", body: blocked, status: 200, advance: 42 * time.Minute})
}

// TestMistakenChargeEnds: a charge in thousandths of the units is over after the debt of a bucket.
func TestMistakenChargeEnds(t *testing.T) {
	s := fileScene(t, "limits:\n  - {name: tokens, key: [tenant], max: 10000/1m, "+
		"algorithm: bucket, holds: 1m}\n")
	const all = `{"descriptor":{"tenant":"secret-key"},"n":10000}`
	s.play(step{path: "/v1/decide", body: `{"descriptor":{"tenant":"secret-key"},"n":730,` +
		`"hold_ms":0}`, status: http.StatusOK},
		step{path: "/v1/settle", body: id(1, `"used":730000000`), status: 204, left: "tokens=0"},
		step{path: "/v1/decide", body: all, status: 429, advance: time.Hour - time.Millisecond},
		step{path: "/v1/decide", body: all, status: 200, advance: time.Millisecond})
}
