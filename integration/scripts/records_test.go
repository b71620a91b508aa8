package scripts

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestLuaMostRecords: with the largest number of records the Lua step writes what the Go step
// writes, which TestMostRecords in package algorithm tests. The states take up to 460 MB, nearly
// all zeros, so the test starts its own servers.
func TestLuaMostRecords(t *testing.T) {
	t.Parallel() // on its own servers
	servers.EachImage(t, func(t *testing.T, image string) {
		client := redis.NewClient(&redis.Options{Addr: servers.Start(t, image).Addr,
			ReadTimeout: time.Minute})
		t.Cleanup(func() { client.Close() })
		now := time.Now().UnixMicro()
		const half = int64(30 * time.Second / time.Microsecond)
		for _, slots := range []int{1 << 25, 9 << 22} {
			head := slots - 3
			n := 1<<25 - 1
			state := make([]byte, slots/64*65*12+96)
			// the records lie at the base, just after it, and half a minute after it
			for _, i := range []int{1, 2, 3, n - 1} {
				putBig(state[(head+i)%slots*12:], 6, int64(i/(n-1)), half)
			}
			end := state[len(state)-96:]
			binary.BigEndian.PutUint32(end, uint32(slots/64))
			putBig(end[4:], 6, 1, half)
			putBig(end[16:], 7, int64(n)<<26|int64(head), 1<<5|8|4,
				int64(time.Minute/time.Microsecond), now-half+1<<51)

			w := newTwin(t, client, "records")
			w.state = state
			setSparse(t, client, w.key, state)
			limit := driver.Limit{Max: driver.MaxUnits, Window: time.Minute}
			d := driver.Demand{Key: "k", N: 2}
			if slots > 1<<25 {
				limit.Max, d.Op = 10, driver.OpForce
			}
			d.Algorithm = algorithm.SlidingLog(limit)
			for _, after := range []int64{1, 5, 9, half, half + 7} {
				w.step(t, now+after, d)
				compareEnds(t, client, w)
			}
			if records := binary.BigEndian.Uint64(w.state[len(w.state)-
				80:]) >> 34; records != 1<<25 {
				t.Errorf("got %d records, want %d", records, 1<<25)
			}
			w.step(t, now+half+8, driver.Demand{Key: "k", Algorithm: d.Algorithm,
				Op: driver.OpPeek, N: 3})
			w.compare(t)
			client.Del(t.Context(), w.key)
		}
	})
}

// putBig writes big-endian numbers of size bytes each.
func putBig(to []byte, size int, numbers ...int64) {
	for i, n := range numbers {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n))
		copy(to[i*size:(i+1)*size], b[8-size:])
	}
}

// setSparse stores a state that is zero except in the parts that ends returns.
func setSparse(t *testing.T, client *redis.Client, key string, state []byte) {
	t.Helper()
	for _, part := range ends(state) {
		if err := client.SetRange(t.Context(), key, int64(part[0]), string(state[part[0]:part[1]])).
			Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// ends returns the ranges of a ring that the test changes: its first slots, its last slots and its
// trailer.
func ends(state []byte) [][2]int {
	size := len(state)
	slots := (size - 96) / 65 / 12 * 64
	return [][2]int{{size - 400, size}, {0, 400}, {slots*12 - 400, slots*12 + 400},
		{1<<25*12 - 400, min(1<<25*12+400, size)}}
}

func compareEnds(t *testing.T, client *redis.Client, w *twin) {
	t.Helper()
	w.compare(t)
	size, err := client.StrLen(t.Context(), w.key).Result()
	if err != nil || size != int64(len(w.state)) {
		t.Fatalf("Lua wrote %d bytes, %v; want %d", size, err, len(w.state))
	}
	for _, part := range ends(w.state) {
		got, err := client.GetRange(t.Context(), w.key, int64(part[0]), int64(part[1]-1)).Bytes()
		want := bytes.Clone(w.state[part[0]:part[1]])
		if part[1] == len(w.state) {
			for _, end := range [][]byte{got[len(got)-96:], want[len(want)-96:]} {
				end[29] &^= 7   // number of copies used
				clear(end[44:]) // time to live, which a server renews less often, and copies
			}
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("from byte %d on Lua wrote\n%x, %v\nwant, as Go wrote,\n%x", part[0], got, err,
				want)
		}
	}
}
