// Package upgrade_test upgrades an installation of the previous release to this one, and back, while
// users work with it.
package upgrade_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/proof/prooftest"
)

// TestUpgrade holds that processes of the previous release run beside those of this one, on the schema
// and the CustomResourceDefinitions of this one, and after a way back. Nothing is lost or done twice, and
// no request fails.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	prooftest.Run(t, "-upgrade", "-faults=none", "-minutes=0.75", "-clusters=40", "-seed=2")
}
