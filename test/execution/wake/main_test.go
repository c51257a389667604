// Package wake changes one object at a time: the status of a Job, the status of a Pod, the
// target, or the spec. No node and no Job controller causes other changes, and every timer is
// longer than the test waits. An execution therefore continues only if the controller watches
// the changed object.
package wake

import (
	"testing"

	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

func TestMain(m *testing.M) { fleettest.Main(m, fleettest.NoNode) }
