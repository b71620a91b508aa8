package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// busOffset is how far the port of a cluster's bus is from the port of the node.
const busOffset = 10000

// FreePort returns a port that is free, as is the port of the bus that belongs to it. Both are
// below those that systems give to outgoing connections, so they stay free while a server is down.
func FreePort() (int, error) {
	for range 100 {
		port := busOffset + rand.IntN(busOffset)
		if free(port) && free(port+busOffset) {
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
