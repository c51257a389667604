package guard_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// The controllers are those that change executions themselves, each with the
// rights that it has in a real cluster, and the one that checks the types in
// policies.
func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{
		CRDs: []string{"../../../deploy/crds"},
		Controllers: []string{
			"garbage-collector-controller", "namespace-controller", "serviceaccount-controller", "validatingadmissionpolicy-status-controller",
		},
		Args: map[string][]string{kubebed.ControllerManager: {"--use-service-account-credentials=true"}},
	})
}
