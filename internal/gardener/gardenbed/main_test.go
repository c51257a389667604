package gardenbed_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/gardener/gardenbed"
	"github.com/fleetloop/fleetloop/internal/gardener/gardenbed/gardenbedtest"
)

func TestMain(m *testing.M) { gardenbedtest.Main(m, gardenbed.Options{}) }
