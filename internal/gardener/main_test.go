package gardener_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

func TestMain(m *testing.M) { kubebedtest.GardenMain(m, gardenbed.Options{}) }
