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
	draft, err := r.Action.kind.draftPlan(ctx, c, s, r.parsed, live)
	if err != nil {
		return nil, r.asPlanningError(err)
	}
	return r.buildPlan(s, live, draft)
}

// waitForObservedTarget reads the target once its controller has observed the latest change, and refuses
// one that cannot be planned for. It returns nil without a target.
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
		return newRefusal(v1alpha1.DetailTargetChanged, "%s has UID %s, but target.uid is %s",
			formatTarget(r.Target), live.GetUID(), r.Target.UID)
	case r.Target.ResourceVersion != "" && r.Target.ResourceVersion != live.GetResourceVersion():
		return newRefusal(v1alpha1.DetailTargetChanged, "%s has resourceVersion %s, but target.resourceVersion is %s",
			formatTarget(r.Target), live.GetResourceVersion(), r.Target.ResourceVersion)
	case live.GetDeletionTimestamp() != nil:
		return newRefusal(v1alpha1.DetailInvalidTargetState, "%s is being deleted", formatTarget(r.Target))
	}
	return nil
}

// isLatestGenerationObserved reports whether the controller of an object has observed its latest change.
// Most kinds do not report that, and count as settled.
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
			APIVersion: r.Target.APIVersion,
			Kind:       r.Target.Kind,
			Namespace:  r.Target.Namespace,
			Name:       r.Target.Name,
		},
		Steps:     append([]v1alpha1.PlanStep{}, d.steps...), // must not be null
		Diff:      d.diff,
		Impact:    d.impact,
		Rollback:  d.rollback,
		CreatedAt: metav1.NewTime(s.Created.UTC().Truncate(time.Second)),
	}
	if live != nil {
		p.Target.UID = live.GetUID()
		p.Target.ResourceVersion = live.GetResourceVersion()
		p.Target.Generation = live.GetGeneration()
	}
	if p.Diff == "" {
		p.Diff = lineDiff(d.before, d.after)
	}
	p.Diff = truncateAtLineEnd(p.Diff, maxDiff)
	p.Impact.Description = TruncateText(p.Impact.Description, maxImpact)
	var err error
	p.Before, err = encodeValues(d.before)
	if err != nil {
		return nil, fmt.Errorf("plan %s: previous values: %w", r.Action.Name, err)
	}
	p.Rollback, err = r.rollbackWithDefaults(d)
	if err != nil {
		return nil, fmt.Errorf("plan %s: rollback: %w", r.Action.Name, err)
	}
	if len(p.Steps) > maxSteps {
		problem := fmt.Sprintf("the plan needs %d requests, at most %d are allowed", len(p.Steps), maxSteps)
		return nil, &InvalidError{Action: r.Action.Name, Problems: []string{problem}}
	}
	for i := range p.Steps {
		step := &p.Steps[i]
		step.Description = TruncateText(step.Description, maxDescription)
		if size := len(step.Body); size > maxBody {
			problem := fmt.Sprintf("a request has %d bytes, at most %d are allowed", size, maxBody)
			return nil, &InvalidError{Action: r.Action.Name, Problems: []string{problem}}
		}
	}

	// The hash covers the plan as it is stored, so it comes last.
	p.Hash = HashPlanEffect(p)
	return p, nil
}

// rollbackWithDefaults returns the rollback of a draft, with the expected values that the action leaves. A
// later attempt uses them to recognise the work of an earlier one.
func (r Request) rollbackWithDefaults(d *draft) (*v1alpha1.RollbackInformation, error) {
	if len(d.steps) == 0 {
		return &v1alpha1.RollbackInformation{Reason: "nothing to roll back"}, nil
	}
	rollback := v1alpha1.RollbackInformation{Reason: "no rollback for " + r.Action.Name}
	if d.rollback != nil {
		rollback = *d.rollback
	}
	if rollback.Available && rollback.EstimatedRollbackDuration == "" {
		rollback.EstimatedRollbackDuration = defaultRollbackDuration
	}
	if rollback.ExpectedCurrentValues == nil {
		expected, err := encodeValues(d.after)
		if err != nil {
			return nil, err
		}
		rollback.ExpectedCurrentValues = expected
	}
	return &rollback, nil
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
	covered.Hash = ""
	covered.Diff = ""
	covered.CreatedAt = metav1.Time{}
	covered.Target.ResourceVersion = ""
	covered.Target.Generation = 0

	// Equal plans may be encoded differently, for example after a round trip through the API server.
	if len(covered.Steps) == 0 {
		covered.Steps = nil
	}
	covered.Parameters = canonicalExtension(covered.Parameters)
	covered.Before = canonicalExtension(covered.Before)
	if rollback := covered.Rollback; rollback != nil {
		rollback.RollbackParameters = canonicalExtension(rollback.RollbackParameters)
		rollback.ExpectedCurrentValues = canonicalExtension(rollback.ExpectedCurrentValues)
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
	names := slices.Collect(maps.Keys(before))
	for name := range after {
		if _, both := before[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var diff strings.Builder
	for _, name := range names {
		removed := fieldLines(name, before[name])
		added := fieldLines(name, after[name])
		if slices.Equal(removed, added) {
			continue
		}
		for _, line := range removed {
			diff.WriteString("- " + line + "\n")
		}
		for _, line := range added {
			diff.WriteString("+ " + line + "\n")
		}
	}
	return diff.String()
}

// fieldLines returns a field as lines of text, or none for a missing field.
func fieldLines(name string, value any) []string {
	if value == nil {
		return nil
	}
	return strings.Split(strings.TrimRight(name+": "+formatUnquotedValue(value), "\n"), "\n")
}

// formatUnquotedValue formats a value for people: a string unchanged, and other values as JSON.
func formatUnquotedValue(value any) string {
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

// setsMarkerOnTarget reports whether the plan sets the marker on its target.
func setsMarkerOnTarget(p *v1alpha1.Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s v1alpha1.PlanStep) bool {
		return isStepForTarget(p, s) && strings.Contains(s.Body, v1alpha1.AnnotationLastExecution)
	})
}

// planTarget returns the target of the plan.
func planTarget(p *v1alpha1.Plan) v1alpha1.Target {
	t := p.Target
	return v1alpha1.Target{APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID}
}

// deletesOrEvictsTarget reports whether the plan removes the target.
func deletesOrEvictsTarget(p *v1alpha1.Plan) bool {
	if len(p.Steps) == 0 {
		return false
	}
	last := p.Steps[len(p.Steps)-1]
	return (last.Verb == verbDelete || last.Verb == verbEvict) && isStepForTarget(p, last)
}

// isStepForTarget reports whether a step applies to the target of the plan.
func isStepForTarget(p *v1alpha1.Plan, step v1alpha1.PlanStep) bool {
	k, ok := findKind(p.Target.APIVersion, p.Target.Kind)
	return ok && step.Resource == k.Resource && step.APIVersion == k.apiVersion() &&
		step.Namespace == p.Target.Namespace && step.Name == p.Target.Name
}
