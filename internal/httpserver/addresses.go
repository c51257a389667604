package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// An Address is one that a process is going to listen on.
type Address struct {
	// Name says what is served there, such as "fleet API".
	Name string
	// Addr is host:port. Several Addresses may have the same one.
	Addr string
	// Flag is the flag that moves it, such as "--listen-address".
	Flag string
}

// CheckFree reports every address on which another process listens, in one
// error, with the flags that move it. It listens on each for a moment; an
// address that cannot be listened on for another reason is left to New.
func CheckFree(ctx context.Context, addresses ...Address) error {
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
	return fmt.Errorf("address already in use: stop the other process, or set another address with the flag in brackets:\n%s", strings.Join(taken, "\n"))
}
