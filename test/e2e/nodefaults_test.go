package e2e

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// faultOnALaptop does what is said that can be tried with node faults, and wants
// the node to be taken out of service, given back, and both to be told.
func faultOnALaptop(t *testing.T, log *logFile, shows func(command []string, want ...string)) {
	t.Helper()
	var commands, server []string
	for _, line := range log.lines() {
		switch line.Msg {
		case "try a node fault":
			commands = append(commands, line.Command)
		case "fleet API ready":
			server = []string{"--server", line.URL}
		}
	}
	if len(commands) != 4 || server == nil {
		t.Fatalf("it names %q, and the fleet API is at %q", commands, server)
	}
	report := func(command string) {
		t.Helper()
		_, rest, _ := strings.Cut(command, "curl -d '")
		body, rest, _ := strings.Cut(rest, "' -H '")
		header, url, found := strings.Cut(rest, "' ")
		if !found {
			t.Fatalf("it says %q", command)
		}
		eventually(t, time.Minute, func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				return err
			}
			name, value, _ := strings.Cut(header, ": ")
			req.Header.Set(name, value)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			if resp.StatusCode != http.StatusAccepted {
				err = errors.New(resp.Status)
			}
			return errors.Join(err, resp.Body.Close())
		})
	}
	list := strings.Fields(commands[1])[1:]
	told := append(strings.Fields(commands[3])[1:], server...)
	report(commands[0])
	shows(list, "FAN-1", "process", "Quarantined")
	report(commands[2])
	shows(told, "Fleetloop cordoned node process due to FAN-1", "Fleetloop uncordoned node process - all health checks passed")
}
