// Package columns tests the columns and field selectors of executions in kubectl against a real
// API server.
package columns

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}
