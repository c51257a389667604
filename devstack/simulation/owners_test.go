package simulation

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// A Deed is an action of an owner on a resource.
type Deed uint8

// The deeds.
const (
	Create Deed = iota
	Patch
	Delete      // with the consent of the adapters
	Remove      // without it
	MoveIn      // into the selector
	MoveOut     // and out of it
	OwnerReport // an unprompted report of the adapters

	NumDeeds
)

// A Step is a deed at a time, repeated Times times with a gap.
type Step struct {
	After    time.Duration // from the start of the world
	Deed     Deed
	Resource string
	Times    int
	Gap      time.Duration
}

// Owners act on resources.
type Owners struct {
	Fleet *Fleet
	In    map[string]string // labels that match the selector
	Out   map[string]string // labels that do not

	// Demote says whether a patch changes the phase at once.
	Demote bool
}

// RunStep runs a step, now, until ctx ends.
func (o *Owners) RunStep(ctx context.Context, s Step) {
	for range max(1, s.Times) {
		switch s.Deed {
		case Create:
			o.Fleet.CreateSession(s.Resource, o.In)
		case Patch:
			o.Fleet.Patch(s.Resource, o.Demote)
		case Delete:
			o.Fleet.MarkDeleted(s.Resource)
		case Remove:
			o.Fleet.Remove(s.Resource)
		case MoveIn:
			o.Fleet.Relabel(s.Resource, o.In)
		case MoveOut:
			o.Fleet.Relabel(s.Resource, o.Out)
		case OwnerReport:
			o.Fleet.Report(s.Resource, 0, true)
		case NumDeeds:
		}
		if s.Times > 1 && backoff.Sleep(ctx, s.Gap) != nil {
			return
		}
	}
}

func newUUID(dice *rand.Rand) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:], dice.Uint64())
	binary.BigEndian.PutUint64(id[8:], dice.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}
