package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// busOffset is the distance of a node's cluster bus port from its port.
const busOffset = 10000

// FreePort returns a port that is free, as is its cluster bus port. Both are below the range of
// outgoing connections, so they stay free while a server is down, and no other process of tests
// gets them as long as this one runs.
func FreePort() (int, error) {
	for range 100 {
		port := busOffset + rand.IntN(busOffset)
		if free(port) && free(port+busOffset) && reserve(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
