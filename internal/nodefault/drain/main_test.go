package drain

import (
	"log/slog"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
)

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler))
	kubebedtest.Main(m, kubebed.Options{Controllers: []string{"disruption-controller"}})
}
