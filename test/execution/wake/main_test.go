package wake

import (
	"testing"

	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

func TestMain(m *testing.M) { fleettest.Main(m, fleettest.NoNode) }
