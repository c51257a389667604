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

// Free ports are below those that the kernel assigns to connections and to listeners on
// port 0. So no other process gets the bed's port by chance while the API server is
// stopped.
const (
	firstPort = 20000
	lastPort  = 29999
	portTries = 50
)

// ErrPortTaken means that another process has the port on which a program should
// listen.
var ErrPortTaken = errors.New("port in use")

// FreePort returns a free port of the bed's address: the earlier one if possible, 0
// being none. Another process may take it before its use; StartProgram then returns
// ErrPortTaken.
func (b *Bed) FreePort(ctx context.Context, before int) (int, error) {
	return freePort(ctx, b.options.ListenAddress, before)
}

// freePort returns a free port, which is the earlier one of the folder if possible.
func freePort(ctx context.Context, address string, preferred int) (int, error) {
	if preferred != 0 && checkPortFree(ctx, address, preferred) == nil {
		return preferred, nil
	}
	var err error
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // chance is all that is wanted
		if err = checkPortFree(ctx, address, port); err == nil {
			return port, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return 0, fmt.Errorf("find free port on %s: %w", address, err)
}

func checkPortFree(ctx context.Context, address string, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// readPreviousPort returns the last port of the folder's API server, or 0.
func (f *folder) readPreviousPort() int {
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

func (f *folder) storePort(port int) error {
	return os.WriteFile(f.Join("port"), []byte(strconv.Itoa(port)+"\n"), 0o600)
}
