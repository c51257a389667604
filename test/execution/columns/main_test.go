package columns

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/kubebedtest"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}
