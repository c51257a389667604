package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// An Address is one that a process will listen on.
type Address struct {
	// Name is the service at the address, such as "fleet API".
	Name string
	// Addr is host:port. Several Addresses may be equal.
	Addr string
	// Flag is the flag that changes it, such as "--listen-address".
	Flag string
}

// CheckAddressesFree returns one error for all addresses on which another process listens, with the flags
// that change them. It listens on each for a moment. It ignores addresses that fail for another
// reason, which New reports.
func CheckAddressesFree(ctx context.Context, addresses ...Address) error {
	var taken []string
	at := map[string]int{} // in taken
	for _, a := range addresses {
		if i, known := at[a.Addr]; known {
			taken[i] += fmt.Sprintf(", %s (%s)", a.Name, a.Flag)
			continue
		}
		var lc net.ListenConfig
		listener, err := lc.Listen(ctx, "tcp", a.Addr)
		if err == nil {
			_ = listener.Close()
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			at[a.Addr] = len(taken)
			taken = append(taken, fmt.Sprintf("  %s: %s (%s)", a.Addr, a.Name, a.Flag))
		}
	}
	if len(taken) == 0 {
		return nil
	}
	return fmt.Errorf(
		"address already in use: stop the other process, or set another address with the flag in brackets:\n%s",
		strings.Join(taken, "\n"),
	)
}
