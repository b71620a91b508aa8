// Package logbytes tells which bytes of a state of the sliding-window log may differ between the
// steps in Go and in Lua.
package logbytes

import "encoding/binary"

// ClearFree clears what may differ in a state: the time to live, which a server renews less often,
// the copies, and the free slots of a ring.
func ClearFree(state []byte) {
	if len(state) < 44 {
		return
	}
	trailer := state[len(state)-32:]
	if len(state) >= 160 {
		trailer = state[len(state)-80:]
		if trailer[13]&8 > 0 {
			slots := 64 * uint64(binary.BigEndian.Uint32(state[len(state)-96:]))
			place := binary.BigEndian.Uint64(trailer) >> 8
			for i := place >> 26; i < slots; i++ {
				clear(state[(place&(1<<26-1)+i)%slots*12:][:12])
			}
		}
		trailer[13] &^= 7 // number of copies used
	}
	clear(trailer[28:])
}
