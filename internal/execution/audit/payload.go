package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	// maxPayload limits a payload, in bytes. Larger payloads lose their largest members, and name
	// them.
	maxPayload = 8 << 10
	maxList    = 50
	// leftOut is the member that names the shortened members.
	leftOut = "truncatedFields"
)

// A payloadObject is a payload under construction. Empty members are omitted.
type payloadObject map[string]any

// redactedBoundedJSON returns the payload as stored: redacted and limited in size.
func (o payloadObject) redactedBoundedJSON(r *redactor) json.RawMessage {
	kept := map[string]any{}
	for name, v := range o {
		if v = r.redactAndLimit(v); v != nil {
			kept[name] = v
		}
	}
	text, err := json.Marshal(kept)
	for err == nil && len(text) > maxPayload {
		shrinkLargestMember(kept)
		text, err = json.Marshal(kept)
	}
	if err != nil {
		return json.RawMessage(`{}`) // not reached: all types here can be encoded
	}
	return text
}

// shrinkLargestMember halves the largest member if it is a list, or removes it, and names it in the
// payload.
func shrinkLargestMember(kept map[string]any) {
	largest, size := "", 0
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		text, err := json.Marshal(kept[name])
		if err == nil && len(text) > size {
			largest, size = name, len(text)
		}
	}
	switch list := kept[largest].(type) {
	case []any:
		kept[largest] = list[:len(list)/2]
	case []string:
		kept[largest] = list[:len(list)/2]
	default:
		delete(kept, largest)
	}
	left, _ := kept[leftOut].([]string)
	if !slices.Contains(left, largest) {
		kept[leftOut] = append(left, largest)
	}
}

// redactAndLimit cleans the texts of a payload and limits its lists. It returns nil for an empty value.
func (r *redactor) redactAndLimit(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
		return sanitizeAndTruncate(r.redactText(v), maxProse)
	case []string:
		if len(v) == 0 {
			return nil
		}
		out := make([]string, 0, len(v))
		for _, s := range v[:min(len(v), maxList)] {
			out = append(out, sanitizeAndTruncate(r.redactText(s), maxProse))
		}
		return out
	case []payloadObject:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, 0, len(v))
		for _, o := range v[:min(len(v), maxList)] {
			out = append(out, r.redactAndLimit(o))
		}
		return out
	case payloadObject:
		out := map[string]any{}
		for name, member := range v {
			if member = r.redactAndLimit(member); member != nil {
				out[name] = member
			}
		}
		return out
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return v.UTC().Format(time.RFC3339Nano)
	}
	return v
}

func (s *recordBuilder) requestPayload() payloadObject {
	spec := &s.ke.Spec
	o := payloadObject{
		"parameters":       s.redact.redactParameters(spec.Parameters),
		"reason":           spec.Reason,
		"requestedByAgent": spec.RequestedByAgent,
		"environment":      spec.Environment,
		"dryRunMode":       string(spec.DryRunMode),
		"mode":             string(spec.ExecutionMode),
	}
	if spec.RollbackOf != nil {
		o["rollbackOf"] = spec.RollbackOf.Name
	}
	if spec.StepNumber != nil {
		o["step"] = *spec.StepNumber
	}
	if spec.MaxRetries != nil {
		o["maxRetries"] = *spec.MaxRetries
	}
	if spec.Timeout != nil {
		o["timeout"] = spec.Timeout.Duration.String()
	}
	return o
}

func policyPayload(redact *redactor, p *v1alpha1.PolicyValidation) payloadObject {
	return payloadObject{
		"policy":           p.PolicyName,
		"mode":             p.Mode,
		"requiredApproval": p.RequiredApproval,
		"requiredDryRun":   p.RequiredDryRun,
		"violations":       redact.withholdAllIfSecretTarget(p.Violations),
		"warnings":         redact.withholdAllIfSecretTarget(p.Warnings),
	}
}

func (s *recordBuilder) validationPayload(v *v1alpha1.ValidationResults) payloadObject {
	o := payloadObject{}
	if p := s.ke.Status.Plan; p != nil {
		o["impact"] = impactPayload(&p.Impact)
		o["resourceVersion"] = p.Target.ResourceVersion
	}
	if v == nil {
		return o
	}
	o["preConditions"] = conditionPayloads(s.redact, v.PreConditionResults)
	if d := v.DryRunResults; d != nil {
		o["dryRun"] = payloadObject{
			"performed": d.Performed,
			"success":   d.Success,
			"warnings":  s.redact.withholdAllIfSecretTarget(d.Warnings),
			"errors":    s.redact.withholdAllIfSecretTarget(d.Errors),
		}
	}
	return o
}

func impactPayload(i *v1alpha1.EstimatedImpact) payloadObject {
	return payloadObject{"resources": i.ResourcesAffected, "replicas": i.ReplicasChanged, "description": i.Description}
}

func conditionPayloads(redact *redactor, results []v1alpha1.ConditionResult) []payloadObject {
	var out []payloadObject
	for i := range results {
		c := &results[i]
		out = append(out, payloadObject{
			"type": c.ConditionType, "evaluated": c.Evaluated, "passed": c.Passed, "required": c.Required,
			"message": redact.withholdIfSecretTarget(c.ErrorMessage), "attempts": c.Attempts,
		})
	}
	return out
}

func approvalRequestPayload(a *v1alpha1.ApprovalStatus) payloadObject {
	if a == nil {
		return payloadObject{}
	}
	o := payloadObject{"count": a.RequiredCount, "groups": a.Groups, "requesterCannotApprove": a.RequesterCannotApprove}
	if a.Deadline != nil {
		o["deadline"] = a.Deadline.Time
	}
	return o
}

func startPayload(p *v1alpha1.Plan) payloadObject {
	if p == nil {
		return payloadObject{}
	}
	return payloadObject{"impact": impactPayload(&p.Impact)}
}

// attemptPayload marks the end of an attempt other than the last as unknown. The status holds the
// times of all attempts together.
func attemptPayload(number int, last bool) payloadObject {
	o := payloadObject{"attempt": number}
	if !last {
		o["endUnknown"] = true
	}
	return o
}

// resultPayload returns the results without the output of the action, which may contain anything.
func resultPayload(redact *redactor, r *v1alpha1.ExecutionResults) payloadObject {
	o := payloadObject{
		"jobName":   r.JobName,
		"jobUID":    string(r.JobUID),
		"mode":      string(r.Mode),
		"duration":  r.Duration,
		"retries":   r.RetriesAttempted,
		"count":     r.ResourcesAffectedCount,
		"error":     redact.withholdIfSecretTarget(r.ErrorMessage),
		"resources": resourcePayloads(redact, r.ResourcesAffected),
	}
	if r.StartTime != nil {
		o["started"] = r.StartTime.Time
	}
	if r.EndTime != nil {
		o["ended"] = r.EndTime.Time
	}
	return o
}

func resourcePayloads(redact *redactor, list []v1alpha1.AffectedResource) []payloadObject {
	var out []payloadObject
	for i := range list {
		a := &list[i]
		o := payloadObject{
			"kind": a.Kind, "namespace": a.Namespace, "name": a.Name, "action": a.Action, "uid": string(a.UID),
			"before": redact.withholdIfSecretTarget(a.Before), "after": redact.withholdIfSecretTarget(a.After),
		}
		if a.Kind == "Secret" {
			delete(o, "before")
			delete(o, "after")
		}
		out = append(out, o)
	}
	return out
}

func rollbackPayload(redact *redactor, r *v1alpha1.RollbackInformation) payloadObject {
	return payloadObject{"action": r.RollbackAction, "parameters": redact.redactParameters(r.RollbackParameters)}
}

func (s *recordBuilder) endPayload() payloadObject {
	st := &s.ke.Status
	o := payloadObject{
		"detail":  string(st.ReasonDetail),
		"message": s.redact.withholdIfSecretTarget(st.Message),
		"target":  st.Target,
	}
	if s.ke.Spec.Cancel {
		o["cancel"] = true
		o["cancelledBy"] = s.ke.Spec.CancelledBy
	}
	if v := st.ValidationResults; v != nil {
		o["postConditions"] = conditionPayloads(s.redact, v.PostConditionResults)
	}
	return o
}

func (r *redactor) withholdAllIfSecretTarget(texts []string) []string {
	var out []string
	for _, t := range texts {
		out = append(out, r.withholdIfSecretTarget(t))
	}
	return out
}
