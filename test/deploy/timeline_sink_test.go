package deploy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// resolveTo makes every name lead to one address during a test.
func resolveTo(t *testing.T, address netip.Addr) {
	t.Helper()
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1<<12); ; {
			n, from, err := socket.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer, err := answerName(buf[:n], address); err == nil {
				_, _ = socket.WriteTo(answer, from)
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", socket.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = socket.Close()
		<-done
	})
}

// answerName answers a query of DNS with an address.
func answerName(query []byte, address netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Additionals = true, nil
	for _, q := range m.Questions {
		answer := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}}
		switch {
		case q.Type == dnsmessage.TypeA && address.Is4():
			answer.Body = &dnsmessage.AResource{A: address.As4()}
		case q.Type == dnsmessage.TypeAAAA && address.Is6():
			answer.Body = &dnsmessage.AAAAResource{AAAA: address.As16()}
		default:
			continue
		}
		m.Answers = append(m.Answers, answer)
	}
	return m.Pack()
}

// privateAddress is an address of a private network: one of this machine, on which
// a server can listen, if it has one.
func privateAddress(t *testing.T) (address netip.Addr, own bool) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsPrivate() {
			return p.Addr(), true
		}
	}
	return netip.MustParseAddr("10.96.12.7"), false
}

// deliver renders the chart with change events to an endpoint, gives a component
// the variables that it would have there, has it send one event, and returns
// what became of it.
func deliver(t *testing.T, deployment, changeEvents string, port int) changeevent.Delivery {
	t.Helper()
	objects := render(t, deploy.Release{Values: newValues(t, fmt.Sprintf(`
global: {changeEvents: {enabled: true, clusterName: prod, auth: {secretRef: {name: ""}}, %s}}
fleetApi: {service: {port: %d}}
clusterWorker: {enabled: true}
executionController: {enabled: true}
nodeFaultController: {enabled: true}
`, changeEvents, port))})
	env := map[string]string{}
	for _, variable := range envOf(t, objects, deployment) {
		name, _ := variable["name"].(string)
		env[name], _ = variable["value"].(string)
	}
	var cfg changes.Config
	if _, err := settings.Load(&cfg, settings.Source{Env: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}); err != nil {
		t.Fatal(err)
	}
	cfg.Retry.MaxAttempts = 1
	p, err := process.New(t.Context(), "test", process.Config{}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	sinks, err := changes.New(cfg, "test", p)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan changeevent.Delivery, 1)
	sinks.SendChangeEvent(t.Context(), changeevent.ChangeEvent{
		Action: changeevent.ActionCordon, NodeName: "n", OnDelivery: func(d changeevent.Delivery) { got <- d },
	})
	if err := sinks.Close(); err != nil {
		t.Error(err)
	}
	select {
	case d := <-got:
		return d
	default:
		t.Fatalf("%s: nothing was sent to %s", deployment, changeEvents)
		return changeevent.Delivery{}
	}
}

// TestTimelineAsSink: the fleet API of the same release is a sink without
// further values, although it is on a private address and without TLS. No other
// private address becomes one by that.
func TestTimelineAsSink(t *testing.T) {
	address, own := privateAddress(t)
	port := 8080
	// Without a server the guard lets the connection through, and nobody answers.
	want := []changeevent.Class{changeevent.ClassConnection, changeevent.ClassTimeout}
	if own {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(address, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}} //nolint:gosec // for a test
		server.Start()
		t.Cleanup(server.Close)
		port, want = int(netip.MustParseAddrPort(listener.Addr().String()).Port()), []changeevent.Class{""}
	}
	endpoint := func(host string) string { return fmt.Sprintf("endpoint: 'http://%s:%d/api/changes'", host, port) }

	resolveTo(t, address)
	const service = "fleetloop-fleet-api.hyperfleet-system"
	for _, deployment := range []string{"fleetloop-cluster-worker", "fleetloop-execution-controller", "fleetloop-node-fault-controller"} {
		for _, host := range []string{service, service + ".svc", service + ".svc.cluster.local"} {
			if d := deliver(t, deployment, endpoint(host)+", timeout: 1s", port); !slices.Contains(want, d.Class) {
				t.Errorf("%s to %s: %+v, want one of the classes %q", deployment, host, d, want)
			}
		}
	}
	for name, values := range map[string]string{
		"AnotherService": endpoint("other.hyperfleet-system") + ", allowHTTP: true",
		"AnotherPort":    fmt.Sprintf("endpoint: 'http://%s:%d/', allowHTTP: true", service, port%65535+1),
		"Public":         endpoint("events.example.com") + ", allowHTTP: true",
	} {
		if d := deliver(t, "fleetloop-cluster-worker", values, port); d.Class != changeevent.ClassAddressDenied {
			t.Errorf("%s: %+v, want the class %s", name, d, changeevent.ClassAddressDenied)
		}
	}
	resolveTo(t, netip.MustParseAddr("169.254.169.254"))
	if d := deliver(t, "fleetloop-cluster-worker", endpoint(service), port); d.Class != changeevent.ClassAddressDenied {
		t.Errorf("metadata of a cloud: %+v, want the class %s", d, changeevent.ClassAddressDenied)
	}
}
