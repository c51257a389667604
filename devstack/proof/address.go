package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Ports are below those that the kernel assigns to connections and to listeners on port 0. So no other process gets
// the port of a process by chance while that is down.
const (
	firstPort = 10_000
	lastPort  = 19_999
)

// newFreeAddress returns an unused address of the loopback interface, and never the same one again.
func (t *topology) newFreeAddress(ctx context.Context) (string, error) {
	if t.lastPort == 0 { // other proofs may run on this machine
		t.lastPort = firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // chance is all that is wanted
	}
	for range lastPort - firstPort {
		t.lastPort++
		if t.lastPort > lastPort {
			t.lastPort = firstPort
		}
		address := fmt.Sprintf("127.0.0.1:%d", t.lastPort)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			return address, l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return "", err
		}
	}
	return "", errors.New("no port is free on 127.0.0.1")
}
