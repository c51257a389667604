package kubebed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Free ports are taken from below those that the kernel gives to connections
// and to whoever listens on port 0: nobody gets ours by chance while the API
// server is stopped for a while.
const (
	firstPort = 20000
	lastPort  = 29999
	portTries = 50
)

// ErrPortTaken is why a program could not start that was to listen on a port
// which somebody else has.
var ErrPortTaken = errors.New("port in use")

// FreePort gives a port of the bed's address that nobody listens on just now:
// the one before if it can, 0 being none. Somebody else may take it until it is
// used; StartProgram says so by ErrPortTaken.
func (b *Bed) FreePort(ctx context.Context, before int) (int, error) {
	return freePort(ctx, b.options.ListenAddress, before)
}

// freePort gives a port that nobody listens on just now; the one that the
// folder had before if it can.
func freePort(ctx context.Context, address string, before int) (int, error) {
	if before != 0 && portIsFree(ctx, address, before) == nil {
		return before, nil
	}
	var err error
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // chance is all that is wanted
		if err = portIsFree(ctx, address, port); err == nil {
			return port, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return 0, fmt.Errorf("find free port on %s: %w", address, err)
}

func portIsFree(ctx context.Context, address string, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// portBefore is the port that the folder's API server listened on last, or 0.
func (f *folder) portBefore() int {
	text, err := os.ReadFile(f.Join("port"))
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return port
}

func (f *folder) rememberPort(port int) error {
	return os.WriteFile(f.Join("port"), []byte(strconv.Itoa(port)+"\n"), 0o600)
}
