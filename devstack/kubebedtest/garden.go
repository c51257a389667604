package kubebedtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
)

//nolint:gochecknoglobals // one garden per test process; testing offers no other place to keep it
var (
	sharedGarden   = newNoBed[*gardenbed.Bed]("GardenMain")
	gardenProjects atomic.Int64 // created so far
)

// GardenMain does for a garden what Main does for a control plane.
func GardenMain(m *testing.M, o gardenbed.Options, options ...goleak.Option) {
	if o.Kube.Log == nil {
		o.Kube.Log = newWarningLogger()
	}
	sharedGarden = newSharedBed("garden", o.Kube.Log, func() (*gardenbed.Bed, error) {
		return gardenbed.Start(context.Background(), o)
	})
	sharedGarden.verifyTestMain(m, options...)
}

// Garden returns the garden of this package's tests.
func Garden(tb testing.TB) *gardenbed.Bed {
	tb.Helper()
	return sharedGarden.startOnceAndShowLogs(tb, func(bed *gardenbed.Bed) { ShowLogsOnFailure(tb, bed.Kube()) })
}

// NewGardenProject creates a project for the test and returns its name and namespace. The name
// is short, as together with that of a Shoot it may have 21 characters. The project
// stays as long as the garden.
func NewGardenProject(tb testing.TB) (name, namespace string) {
	tb.Helper()
	name = fmt.Sprintf("test%d", gardenProjects.Add(1))
	namespace, err := Garden(tb).ApplyProjectAndWait(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return name, namespace
}

// StartGardenlet runs a gardenlet for the Shoots of a namespace until the test ends.
func StartGardenlet(tb testing.TB, bed *gardenbed.Bed, o gardenbed.GardenletOptions) *gardenbed.Gardenlet {
	tb.Helper()
	g, err := gardenbed.NewGardenlet(bed.Config(), o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the gardenlet: %v", err)
		}
	})
	return g
}
