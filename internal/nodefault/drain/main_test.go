package drain

import (
	"log/slog"
	"testing"

	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
)

func TestMain(m *testing.M) {
	kube.TakeLogs(slog.New(slog.DiscardHandler))
	kubebedtest.Main(m, kubebed.Options{Controllers: []string{"disruption-controller"}})
}
