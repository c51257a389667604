package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/datamodels"
)

// maxEvents is the maximum number of events per call.
const maxEvents = 1000

// unknownAgent is the name of a monitor without a name, which NVSentinel allows.
const unknownAgent = "unknown"

// HealthEventOccurredV1 stores health events, and returns when all are durable. Events
// are independent of each other: an invalid event does not affect the others of the call.
func (s *grpcService) HealthEventOccurredV1(
	ctx context.Context, in *datamodels.HealthEvents,
) (*emptypb.Empty, error) {
	events := in.GetEvents()
	if len(events) > maxEvents {
		return nil, status.Errorf(codes.InvalidArgument, "%d events in a call, at most %d allowed", len(events), maxEvents)
	}
	now := time.Now()
	errs := make([]error, len(events))
	var reports []nodefault.Report
	var places []int
	for i, e := range events {
		r, err := eventFromProto(e).ToReport(now)
		if err != nil {
			s.metrics.CountRejected(KindGRPC, err)
			errs[i] = err
			continue
		}
		reports, places = append(reports, r), append(places, i)
	}
	if len(reports) > 0 {
		for n, err := range SplitReportErrors(s.store.Apply(ctx, reports), len(reports)) {
			errs[places[n]] = err
		}
	}
	if err := s.logAndCombineIntoStatus(ctx, errs); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// logAndCombineIntoStatus returns one status for all events. A transient error takes precedence,
// so that the caller sends all events again.
func (s *grpcService) logAndCombineIntoStatus(ctx context.Context, errs []error) error {
	refused, place := 0, -1
	for i, err := range errs {
		if err == nil {
			continue
		}
		refused++
		if place < 0 || Transient(err) && !Transient(errs[place]) {
			place = i
		}
	}
	if refused == 0 {
		return nil
	}
	err := errs[place]
	s.log.WarnContext(ctx, "reports rejected", "source_kind", KindGRPC, "stored", len(errs)-refused, "rejected", refused, "err", err)
	code := codes.InvalidArgument
	switch {
	case errors.Is(err, ErrBusy):
		return status.Error(codes.ResourceExhausted, ErrBusy.Error())
	case Transient(err):
		return status.Error(codes.Unavailable, ErrUnavailable.Error()) // the cause is not for the caller
	case errors.Is(err, ErrUnknownNode):
		code = codes.NotFound
	case errors.Is(err, ErrFull):
		code = codes.FailedPrecondition
	}
	return status.Error(code, fmt.Sprintf("%d of %d events rejected, the others stored; event %d: %v", refused, len(errs), place, err))
}

// eventFromProto converts an event of the protocol.
func eventFromProto(e *datamodels.HealthEvent) Event {
	out := Event{
		Node: e.GetNodeName(), Agent: cmp.Or(e.GetAgent(), unknownAgent), Check: e.GetCheckName(), ComponentClass: e.GetComponentClass(),
		ErrorCodes: e.GetErrorCode(), Fatal: e.GetIsFatal(), Healthy: e.GetIsHealthy(), Message: e.GetMessage(),
		Action: NVSentinelActionName(int32(e.GetRecommendedAction())), CustomAction: e.GetCustomRecommendedAction(),
		ObserveOnly: IsObserveOnlyStrategy(int32(e.GetProcessingStrategy())),
		Quarantine:  overridesFromProto(e.GetQuarantineOverrides()), Drain: overridesFromProto(e.GetDrainOverrides()),
	}
	for _, entity := range e.GetEntitiesImpacted() {
		out.Entities = append(out.Entities, Entity{Type: entity.GetEntityType(), Value: entity.GetEntityValue()})
	}
	if at := e.GetGeneratedTimestamp(); at.IsValid() && at.AsTime().Unix() != 0 {
		out.At = at.AsTime()
	}
	return out
}

func overridesFromProto(o *datamodels.BehaviourOverrides) Overrides {
	return Overrides{Force: o.GetForce(), Skip: o.GetSkip()}
}
