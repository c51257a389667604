package gardener_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/gardenbedtest"
)

func TestMain(m *testing.M) { gardenbedtest.Main(m, gardenbed.Options{}) }
