package sentinelapp

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/app/bus"
)

// elsewhere is a broker that somebody else runs.
type elsewhere struct{ *bus.Bus }

// Run waits, because the bus is run already.
func (elsewhere) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
