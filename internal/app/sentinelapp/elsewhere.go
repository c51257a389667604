package sentinelapp

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/app/bus"
)

// borrowedBroker is a broker that somebody else runs.
type borrowedBroker struct{ *bus.Bus }

// Run waits, because the bus is run already.
func (borrowedBroker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
