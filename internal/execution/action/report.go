package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	maxResources = 50   // listed in a result
	maxLog       = 2048 // bytes of the log kept in a result
	maxFields    = 512  // bytes of a resource's before and after
	maxMessage   = 1024 // bytes
)

// recordAlreadyDone reports work done by an earlier attempt.
func (w *attemptState) recordAlreadyDone(live *unstructured.Unstructured, expected expectation, did string) {
	w.report.logLine(w.note)
	if live == nil || w.run.dry || !w.mayHaveActedBefore() {
		return
	}
	w.report.addAffected(v1alpha1.AffectedResource{
		Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName(), UID: live.GetUID(), Action: did,
		Before: formatFields(
			decodeValues(w.plan.Before),
		), After: formatFields(expected.values(live)), ResourceVersionAfter: live.GetResourceVersion(),
	})
}

// newAffectedResource describes a changed object.
func newAffectedResource(
	live, answer *unstructured.Unstructured,
	expected expectation,
	did, verb string,
) (object v1alpha1.AffectedResource, apiVersion string) {
	object = v1alpha1.AffectedResource{
		Kind: live.GetKind(), Namespace: live.GetNamespace(), Name: live.GetName(), UID: live.GetUID(), Action: pastParticiple(verb, did),
		Before: formatFields(expected.values(live)), ResourceVersionBefore: live.GetResourceVersion(),
	}
	if answer != nil && verb != verbDelete && verb != verbEvict {
		object.After, object.ResourceVersionAfter = formatFields(expected.values(answer)), answer.GetResourceVersion()
	}
	return object, live.GetAPIVersion()
}

// report collects what an attempt did.
type report struct {
	dry    bool
	output io.Writer
	result Result
	log    []string
}

// recordChange records a change and logs it in the style of kubectl.
func (r *report) recordChange(object v1alpha1.AffectedResource, apiVersion string) {
	line := kubectlName(apiVersion, object.Kind, object.Name) + " " + object.Action
	if r.dry {
		r.logLine(line + " (server dry run)")
		return
	}
	r.result.Changed = true
	r.logLine(line)
	r.addAffected(object)
}

// addAffected adds an object to the result.
func (r *report) addAffected(object v1alpha1.AffectedResource) {
	r.result.Count++
	if len(r.result.Resources) < maxResources {
		r.result.Resources = append(r.result.Resources, object)
	}
}

// logLine writes a line to the output and keeps it for the log of the result.
func (r *report) logLine(line string) {
	r.log = append(r.log, line)
	if r.output != nil {
		_, _ = fmt.Fprintln(r.output, line) // a broken output must not stop the action
	}
}

// buildResult returns the result of the attempt. err is the error that stopped it.
func (w *attemptState) buildResult(err error) Result {
	result := w.report.result
	result.Message = w.note
	if result.Message == "" && len(w.report.log) > 0 {
		result.Message = w.report.log[len(w.report.log)-1]
	}
	if err != nil {
		h, isHalt := errors.AsType[*halt](err)
		if !isHalt {
			h = &halt{code: CodeTransient, message: err.Error()}
		}
		result.Code, result.Message = h.code, h.message
		endedUnread := h.code == CodeDeadline || h.code == CodeCancelled || h.code == CodeTransient
		if endedUnread && w.sender.unsure && !w.run.dry {
			// The attempt ended before it read the effect of a write. Its result must not suggest that nothing was done.
			result.Changed = true
			result.Message += "; the result of the last request is unknown: check the target before you retry"
		}
		refused := slices.Contains([]Code{CodeGuard, CodeForbidden, CodeInvalid, CodeDenied}, h.code)
		if refused && result.Changed {
			result.Code = CodePartial
		}
		w.report.logLine("error: " + result.Message)
	}
	result.Message = TruncateText(result.Message, maxMessage)
	result.Log, result.Truncated = lastLines(w.report.log, maxLog)
	return result
}

// lastLines returns as many of the last lines as fit.
func lastLines(lines []string, maxBytes int) (text string, cut bool) {
	from, size := len(lines), 0
	for from > 0 && size+len(lines[from-1])+1 <= maxBytes {
		from--
		size += len(lines[from]) + 1
		text = lines[from] + "\n" + text
	}
	return text, from > 0
}

// decodeValues decodes the values that encodeValues encoded. It returns nil for invalid ones.
func decodeValues(e *runtime.RawExtension) map[string]any {
	var values map[string]any
	if e == nil || json.Unmarshal(e.Raw, &values) != nil {
		return nil
	}
	return values
}

// formatFields formats values in one line, such as "replicas: 3".
func formatFields(values map[string]any) string {
	parts := make([]string, 0, len(values))
	for _, f := range slices.Sorted(maps.Keys(values)) {
		if values[f] != nil {
			parts = append(parts, f+": "+formatUnquotedValue(values[f]))
		}
	}
	return TruncateText(strings.Join(parts, ", "), maxFields)
}

// pastParticiple returns one word for a completed step.
func pastParticiple(verb, did string) string {
	switch {
	case did != "" && verb == verbPatch:
		return did
	case verb == verbDelete:
		return "deleted"
	case verb == verbEvict:
		return "evicted"
	case verb == verbCreate:
		return "created"
	}
	return did
}
