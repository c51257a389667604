package leasestest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/kube/leases/leasestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	leasestest.Run(t, func(*testing.T) func() leasestest.Leases {
		store := leasestest.NewMemory()
		return func() leasestest.Leases { return store }
	})
}
