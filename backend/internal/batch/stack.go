package batch

// stackSize is roughly what a client library needs of the stack to send a command.
const stackSize = 8 << 10

// growStack makes room for stackSize bytes on the stack of its goroutine, by the size of its frame.
// A new goroutine that calls a client library would otherwise grow its stack several times on the
// way down and move more frames each time, which costs a quarter of the client's processor time for
// a single call. use is always false, so that the bytes are not cleared.
//
//go:noinline
func growStack(use bool) {
	if use {
		var room [stackSize]byte
		touch(room[:])
	}
}

//go:noinline
func touch(room []byte) { clear(room) }
