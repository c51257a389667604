package sentinelapp

import (
	"context"
)

// borrowedBroker is a broker that the caller runs.
type borrowedBroker struct{ *Broker }

// Run only waits, because the caller runs the broker.
func (borrowedBroker) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
