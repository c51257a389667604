package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// checkPortsFree fails if another process listens on an address that "fleetloop up" will listen on. It takes
// the arguments of "fleetloop up". "make up" runs it before it builds "fleetloop up", which makes the
// same check.
func checkPortsFree(ctx context.Context, args []string, _ io.Writer) error {
	err := httpserver.CheckAddressesFree(ctx, listenAddressesOfUp(args, settings.OSEnv)...)
	if err != nil {
		return fmt.Errorf("%w\nset flags with UP_ARGS, such as UP_ARGS=\"--listen-address 127.0.0.1:9080\"", err)
	}
	return nil
}

// listenAddressesOfUp returns the addresses of "fleetloop up" with the given arguments and
// environment.
func listenAddressesOfUp(args []string, env func(string) (string, bool)) []httpserver.Address {
	list := []httpserver.Address{
		{Name: "fleet API", Addr: "127.0.0.1:8080", Flag: "--listen-address"},
		{Name: "health", Addr: "127.0.0.1:8081", Flag: "--health-probe-bind-address"},
		{Name: "metrics", Addr: "127.0.0.1:8081", Flag: "--metrics-bind-address"},
		{Name: "console", Addr: "127.0.0.1:8082", Flag: "--console-listen-address"},
	}
	for i, variable := range []string{"LISTEN_ADDRESS", "HEALTH_PROBE_BIND_ADDRESS", "METRICS_BIND_ADDRESS", "CONSOLE_LISTEN_ADDRESS"} {
		if value, _ := env(variable); value != "" {
			list[i].Addr = value
		}
		for j, arg := range args {
			value, given := strings.CutPrefix(arg, list[i].Flag+"=")
			if arg == list[i].Flag && j+1 < len(args) {
				value, given = args[j+1], true
			}
			if given {
				list[i].Addr = value
			}
		}
	}
	return list
}
