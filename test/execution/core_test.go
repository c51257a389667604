package execution

import (
	"testing"

	"github.com/fleetloop/fleetloop/test/execution/coretest"
)

func TestCore(t *testing.T) {
	t.Parallel()
	coretest.Run(t)
}
