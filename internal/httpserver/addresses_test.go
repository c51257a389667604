package httpserver_test

import (
	"net"
	"testing"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// TestCheckFree: all conflicts are in one error, and a free address is free
// afterwards.
func TestCheckFree(t *testing.T) {
	listen := func(addr string) net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, two := listen("127.0.0.1:0").Addr().String(), listen("127.0.0.1:0").Addr().String()
	former := listen("127.0.0.1:0")
	free := former.Addr().String()
	if err := former.Close(); err != nil {
		t.Fatal(err)
	}
	addresses := []httpserver.Address{
		{Name: "fleet API", Addr: one, Flag: "--a"},
		{Name: "other", Addr: free, Flag: "--b"},
		{Name: "health", Addr: two, Flag: "--c"},
		{Name: "metrics", Addr: two, Flag: "--d"},
	}
	err := httpserver.CheckAddressesFree(t.Context(), addresses...)
	want := "address already in use: stop the other process, or set another address with the flag in brackets:\n  " +
		one + ": fleet API (--a)\n  " + two + ": health (--c), metrics (--d)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := httpserver.CheckAddressesFree(t.Context(), addresses[1], addresses[1]); err != nil {
		t.Errorf("a free address: %v", err)
	}
	listen(free)
}
