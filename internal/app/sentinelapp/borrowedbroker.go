package sentinelapp

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/app/bus"
)

// borrowedBroker is a broker that the caller runs.
type borrowedBroker struct{ *bus.Bus }

// Run only waits, because the caller runs the bus.
func (borrowedBroker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
