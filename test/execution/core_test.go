package execution

import (
	"testing"

	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

func TestCore(t *testing.T) {
	t.Parallel()
	fleettest.RunCoreTests(t)
}
