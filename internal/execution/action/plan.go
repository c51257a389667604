package action

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	requestTimeout = 10 * time.Second // per request

	// The API server retries the eviction of a replaced Pod for 10 seconds before it reports an
	// error.
	evictionTimeout = 20 * time.Second

	// A running controller observes a change within this time.
	settleTimes = 4
	settlePause = 250 * time.Millisecond

	// Limits of the CRD schema.
	maxBody        = 16384
	maxDiff        = 8192
	maxSteps       = 64
	maxDescription = 512
	maxImpact      = 1024

	defaultRollbackDuration = "10s"
)

// Plan plans a request for the live object. Equal state yields an equal plan. The error is a
// *RefusedError, an *InvalidError if only the API server could detect a wrong parameter, or an API
// error.
func (r Request) Plan(ctx context.Context, c Client, s Subject) (*v1alpha1.Plan, error) {
	ctx, _ = withWarningCollector(ctx) // discard warnings here: the dry run receives them again
	live, err := r.waitForObservedTarget(ctx, c)
	if err != nil {
		return nil, r.asPlanningError(err)
	}
	d, err := r.Action.kind.draftPlan(ctx, c, s, r.parsed, live)
	if err != nil {
		return nil, r.asPlanningError(err)
	}
	return r.buildPlan(s, live, d)
}

// waitForObservedTarget reads the target and checks that planning is possible. It returns nil without a
// target.
func (r Request) waitForObservedTarget(ctx context.Context, c Client) (*unstructured.Unstructured, error) {
	if r.Target.Kind == "" {
		return nil, nil
	}
	for try := 0; ; try++ {
		live, err := c.getObjectOnce(ctx, r.Target)
		if apierrors.IsNotFound(err) && r.Action.kind.targetOptional() && r.Target.UID == "" {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if err = r.refuseUnexpectedTarget(live); err != nil {
			return nil, err
		}
		if isLatestGenerationObserved(live) {
			return live, nil
		}
		if try == settleTimes {
			return nil, &RefusedError{
				Detail: v1alpha1.DetailInvalidTargetState, Unsettled: true,
				Message: formatTarget(r.Target) + ": its controller has not observed the latest change yet; try again",
			}
		}
		if err = backoff.Sleep(ctx, settlePause); err != nil {
			return nil, err
		}
	}
}

// refuseUnexpectedTarget refuses an object whose identity or state differs from the request.
func (r Request) refuseUnexpectedTarget(live *unstructured.Unstructured) error {
	switch {
	case r.Target.UID != "" && r.Target.UID != live.GetUID():
		return newRefusal(v1alpha1.DetailTargetChanged, "%s has UID %s, but target.uid is %s", formatTarget(r.Target), live.GetUID(), r.Target.UID)
	case r.Target.ResourceVersion != "" && r.Target.ResourceVersion != live.GetResourceVersion():
		return newRefusal(v1alpha1.DetailTargetChanged, "%s has resourceVersion %s, but target.resourceVersion is %s", formatTarget(r.Target), live.GetResourceVersion(), r.Target.ResourceVersion)
	case live.GetDeletionTimestamp() != nil:
		return newRefusal(v1alpha1.DetailInvalidTargetState, "%s is being deleted", formatTarget(r.Target))
	}
	return nil
}

// isLatestGenerationObserved reports whether the controller of an object has observed its latest change. Most kinds
// do not report that, and count as settled.
func isLatestGenerationObserved(live *unstructured.Unstructured) bool {
	observed, found, err := unstructured.NestedInt64(live.Object, "status", "observedGeneration")
	return err != nil || !found || observed >= live.GetGeneration()
}

func newRefusal(d v1alpha1.Detail, format string, args ...any) error {
	return &RefusedError{Detail: d, Message: fmt.Sprintf(format, args...)}
}

// asPlanningError converts API errors to errors of planning.
func (r Request) asPlanningError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return newRefusal(v1alpha1.DetailTargetNotFound, "%s does not exist: %s", formatTarget(r.Target), err)
	case apierrors.IsForbidden(err):
		return newRefusal(v1alpha1.DetailRBACDenied, "plan %s as %s: %s", r.Action.Name, r.Action.ServiceAccount(), err)
	}
	return err
}

// buildPlan completes a draft to a plan.
func (r Request) buildPlan(s Subject, live *unstructured.Unstructured, d *draft) (*v1alpha1.Plan, error) {
	p := &v1alpha1.Plan{
		Action:     r.Action.Name,
		Parameters: &runtime.RawExtension{Raw: r.Parameters},
		Target: v1alpha1.PlanTarget{
			APIVersion: r.Target.APIVersion, Kind: r.Target.Kind, Namespace: r.Target.Namespace, Name: r.Target.Name,
		},
		Steps:     append([]v1alpha1.PlanStep{}, d.steps...), // must not be null
		Diff:      d.diff,
		Impact:    d.impact,
		Rollback:  d.rollback,
		CreatedAt: metav1.NewTime(s.Created.UTC().Truncate(time.Second)),
	}
	if live != nil {
		p.Target.UID, p.Target.ResourceVersion, p.Target.Generation = live.GetUID(), live.GetResourceVersion(), live.GetGeneration()
	}
	if p.Diff == "" {
		p.Diff = lineDiff(d.before, d.after)
	}
	p.Diff = truncateAtLineEnd(p.Diff, maxDiff)
	p.Impact.Description = TruncateText(p.Impact.Description, maxImpact)
	var err error
	if p.Before, err = encodeValues(d.before); err != nil {
		return nil, fmt.Errorf("plan %s: previous values: %w", r.Action.Name, err)
	}
	if p.Rollback, err = r.completeRollback(d); err != nil {
		return nil, fmt.Errorf("plan %s: rollback: %w", r.Action.Name, err)
	}
	if len(p.Steps) > maxSteps {
		return nil, &InvalidError{Action: r.Action.Name, Problems: []string{fmt.Sprintf("the plan needs %d requests, at most %d are allowed", len(p.Steps), maxSteps)}}
	}
	for i := range p.Steps {
		p.Steps[i].Description = TruncateText(p.Steps[i].Description, maxDescription)
		if n := len(p.Steps[i].Body); n > maxBody {
			return nil, &InvalidError{Action: r.Action.Name, Problems: []string{fmt.Sprintf("a request has %d bytes, at most %d are allowed", n, maxBody)}}
		}
	}
	p.Hash = HashPlanEffect(p)
	return p, nil
}

// completeRollback returns the rollback of a draft, with the expected values that the action leaves. A
// later attempt uses them to recognise the work of an earlier one.
func (r Request) completeRollback(d *draft) (*v1alpha1.RollbackInformation, error) {
	if len(d.steps) == 0 {
		return &v1alpha1.RollbackInformation{Reason: "nothing to roll back"}, nil
	}
	back := v1alpha1.RollbackInformation{Reason: "no rollback for " + r.Action.Name}
	if d.rollback != nil {
		back = *d.rollback
	}
	if back.Available && back.EstimatedRollbackDuration == "" {
		back.EstimatedRollbackDuration = defaultRollbackDuration
	}
	if back.ExpectedCurrentValues == nil {
		var err error
		if back.ExpectedCurrentValues, err = encodeValues(d.after); err != nil {
			return nil, err
		}
	}
	return &back, nil
}

// encodeValues encodes values as canonical JSON.
func encodeValues(values map[string]any) (*runtime.RawExtension, error) {
	if values == nil {
		values = map[string]any{}
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	if raw, err = canonicalJSON(raw); err != nil {
		return nil, err
	}
	return &runtime.RawExtension{Raw: raw}, nil
}

// HashPlanEffect returns the SHA-256 of the effect of a plan, in hexadecimal. It does not cover
// resourceVersion, generation, diff and createdAt, which can change without changing the effect.
func HashPlanEffect(p *v1alpha1.Plan) string {
	covered := *p.DeepCopy()
	covered.Hash, covered.Diff, covered.CreatedAt = "", "", metav1.Time{}
	covered.Target.ResourceVersion, covered.Target.Generation = "", 0
	if len(covered.Steps) == 0 {
		covered.Steps = nil
	}
	covered.Parameters, covered.Before = canonicalExtension(covered.Parameters), canonicalExtension(covered.Before)
	if back := covered.Rollback; back != nil {
		back.RollbackParameters, back.ExpectedCurrentValues = canonicalExtension(back.RollbackParameters), canonicalExtension(back.ExpectedCurrentValues)
	}
	text, err := json.Marshal(covered)
	if err != nil {
		return "" // matches no plan, because no plan has an empty hash
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// canonicalExtension returns the canonical form of a value. Invalid JSON becomes a string, which has a hash
// and is rejected when it is read.
func canonicalExtension(e *runtime.RawExtension) *runtime.RawExtension {
	if e == nil || len(e.Raw) == 0 {
		return nil
	}
	raw, err := canonicalJSON(e.Raw)
	if err != nil {
		raw, _ = json.Marshal("invalid JSON: " + string(e.Raw)) // encoding a string cannot fail
	}
	return &runtime.RawExtension{Raw: raw}
}

// lineDiff returns the change of fields line by line.
func lineDiff(before, after map[string]any) string {
	fields := slices.Collect(maps.Keys(before))
	for f := range after {
		if _, both := before[f]; !both {
			fields = append(fields, f)
		}
	}
	slices.Sort(fields)
	var b strings.Builder
	for _, f := range fields {
		was, is := fieldLines(f, before[f]), fieldLines(f, after[f])
		if slices.Equal(was, is) {
			continue
		}
		for _, l := range was {
			b.WriteString("- " + l + "\n")
		}
		for _, l := range is {
			b.WriteString("+ " + l + "\n")
		}
	}
	return b.String()
}

// fieldLines returns a field as lines of text, or none for a missing field.
func fieldLines(name string, value any) []string {
	if value == nil {
		return nil
	}
	return strings.Split(strings.TrimRight(name+": "+formatValue(value), "\n"), "\n")
}

// formatValue formats a value for people: a string unchanged, and other values as JSON.
func formatValue(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// truncateAtLineEnd limits a text by omitting whole lines at its end.
func truncateAtLineEnd(s string, maxBytes int) string {
	const mark = "…\n"
	if len(s) <= maxBytes {
		return s
	}
	s = s[:maxBytes-len(mark)]
	if end := strings.LastIndexByte(s, '\n'); end >= 0 {
		return s[:end+1] + mark
	}
	return strings.ToValidUTF8(s, "") + mark
}
