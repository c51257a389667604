package rabbitmq_test

import (
	"net"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq"
)

func TestServerThatIsNotInstalled(t *testing.T) {
	_, err := rabbitmq.Start(t.Context(), rabbitmq.Options{Bin: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "make setup") || strings.Contains(err.Error(), "\n") {
		t.Errorf("Start() = %v, want one line that says what to install", err)
	}
}

func TestServer(t *testing.T) {
	s, err := rabbitmq.Start(t.Context(), rabbitmq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if _, err := s.RunRabbitMQCtl(t.Context(), "add_vhost", "kept"); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := s.RunRabbitMQCtl(t.Context(), "list_vhosts")
	if err != nil || !strings.Contains(out, "kept") {
		t.Errorf("list_vhosts after a kill gives %q, %v, want what was there before", out, err)
	}
	s.Stop()
	if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr()); err == nil {
		_ = c.Close()
		t.Error("the server answers after Stop")
	}
}
