package intake

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
)

// unknownAgent is the name of a monitor without a name, which NVSentinel allows.
const unknownAgent = "unknown"

// HealthEventOccurredV1 stores health events, and returns when all are durable. Events
// are independent of each other: an invalid event does not affect the others of the call.
func (s *grpcService) HealthEventOccurredV1(
	ctx context.Context, in *datamodels.HealthEvents,
) (*emptypb.Empty, error) {
	events := in.GetEvents()
	if len(events) > maxRequestEvents {
		return nil, status.Errorf(codes.InvalidArgument, "%d events in a call, at most %d allowed", len(events), maxRequestEvents)
	}
	converted := make([]eventOrError, len(events))
	for i, e := range events {
		converted[i].event = eventFromProto(e)
	}
	errs := s.store.storeEvents(ctx, converted)
	if err := s.logAndCombineIntoStatus(ctx, errs); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// logAndCombineIntoStatus returns one status for all events. A transient error takes precedence,
// so that the caller sends all events again.
func (s *grpcService) logAndCombineIntoStatus(ctx context.Context, errs []error) error {
	rejected, first := 0, -1
	for i, err := range errs {
		if err == nil {
			continue
		}
		rejected++
		if first < 0 || Transient(err) && !Transient(errs[first]) {
			first = i
		}
	}
	if rejected == 0 {
		return nil
	}
	err := errs[first]
	s.log.WarnContext(ctx, "reports rejected",
		"source_kind", KindGRPC, "stored", len(errs)-rejected, "rejected", rejected, "err", err)
	code := codes.InvalidArgument
	switch {
	case errors.Is(err, ErrBusy):
		return status.Error(codes.ResourceExhausted, ErrBusy.Error())
	case Transient(err):
		return status.Error(codes.Unavailable, ErrUnavailable.Error()) // the cause is not for the caller
	case errors.Is(err, ErrUnknownNode):
		code = codes.NotFound
	case errors.Is(err, ErrFull), errors.Is(err, ErrOutdated):
		code = codes.FailedPrecondition
	}
	return status.Errorf(code, "%d of %d events rejected, the others stored; event %d: %v", rejected, len(errs), first, err)
}

// eventFromProto converts an event of the protocol.
func eventFromProto(e *datamodels.HealthEvent) Event {
	out := Event{
		Node:           e.GetNodeName(),
		Agent:          cmp.Or(e.GetAgent(), unknownAgent),
		Check:          e.GetCheckName(),
		ComponentClass: e.GetComponentClass(),
		ErrorCodes:     e.GetErrorCode(),
		Fatal:          e.GetIsFatal(),
		Healthy:        e.GetIsHealthy(),
		Message:        e.GetMessage(),
		Action:         NVSentinelActionName(int32(e.GetRecommendedAction())),
		CustomAction:   e.GetCustomRecommendedAction(),
		ObserveOnly:    IsObserveOnlyStrategy(int32(e.GetProcessingStrategy())),
		Quarantine:     overridesFromProto(e.GetQuarantineOverrides()),
		Drain:          overridesFromProto(e.GetDrainOverrides()),
	}
	for _, entity := range e.GetEntitiesImpacted() {
		out.Entities = append(out.Entities, Entity{Type: entity.GetEntityType(), Value: entity.GetEntityValue()})
	}
	if at := e.GetGeneratedTimestamp(); at.IsValid() && at.AsTime().Unix() != 0 {
		out.At, out.GeneratedAt = at.AsTime(), at.AsTime()
	}
	return out
}

func overridesFromProto(o *datamodels.BehaviourOverrides) Overrides {
	return Overrides{Force: o.GetForce(), Skip: o.GetSkip()}
}
