package action

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A trial is one action from being asked for to being taken back.
type trial struct {
	reason     string
	object     map[string]any // to act on; its namespace is the stage's
	setup      func(s *stage, o *unstructured.Unstructured)
	action     string
	parameters map[string]any

	did           string
	before, after string // what those of the affected resource begin with
	foreign       string // a merge patch that changes what the action depends on
	back          string // the action that is the way back; empty is none
}

// run tries all that an action promises.
func (tr trial) run(t *testing.T) {
	t.Helper()
	for name, try := range map[string]func(*stage, trial, *unstructured.Unstructured){
		"DoneAndTakenBack": wantDone,
		"DryRun":           wantDry,
		"OtherObject":      wantOtherObject,
		"OtherValues":      wantOtherValues,
		"Conflict":         wantConflict,
		"AnswerLost":       wantAnswerLost,
		"Race":             wantRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			o := s.create(tr.object)
			if tr.setup != nil {
				tr.setup(s, o)
				o = s.read(o)
			}
			try(s, tr, o)
		})
	}
}

// wantDone plans and executes, twice, and goes back.
func wantDone(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid-of-the-first")
	p := s.plan(c, r, subject)
	if again := s.plan(c, r, subject); again.Hash != p.Hash {
		s.Errorf("the same state has the plans %s", cmp.Diff(p, again))
	}
	if n := len(w.sent()); n > 0 {
		s.Fatalf("planning wrote: %v", w.sent())
	}
	was := r.Action.kind.relevantValues(r.parsed, s.read(o))
	var out bytes.Buffer
	result := Execute(s.Context(), c, p, Run{Subject: subject, Output: &out})
	wantCode(s.T, result, CodeOK)
	if !result.Changed || len(result.Resources) != len(p.Steps) || result.Count != int32(len(p.Steps)) {
		s.Fatalf("result %+v, want %d changed objects", result, len(p.Steps))
	}
	got := result.Resources[len(result.Resources)-1]
	if got.Action != tr.did || !strings.HasPrefix(got.Before, tr.before) || !strings.HasPrefix(got.After, tr.after) || got.UID != o.GetUID() || got.Kind != o.GetKind() {
		s.Errorf("affected %+v, want %q: %q to %q", got, tr.did, tr.before, tr.after)
	}
	if line := kubectlName(o.GetAPIVersion(), o.GetKind(), o.GetName()) + " " + tr.did; !strings.Contains(out.String(), line) {
		s.Errorf("output %q, want %q", out.String(), line)
	}
	writes := len(w.sent())
	result = Execute(s.Context(), c, p, Run{Subject: subject, Attempt: 2})
	wantCode(s.T, result, CodeOK)
	if result.Changed || len(w.sent()) != writes {
		s.Errorf("the second attempt wrote %v", w.sent()[writes:])
	}
	tr.goBack(s, o, p, was)
}

// goBack follows the way back of a plan.
func (tr trial) goBack(s *stage, o *unstructured.Unstructured, p *v1alpha1.Plan, was map[string]any) {
	s.Helper()
	if tr.back == "" {
		if p.Rollback == nil || p.Rollback.Available || p.Rollback.Reason == "" {
			s.Errorf("rollback %+v, want none with a reason", p.Rollback)
		}
		return
	}
	back := p.Rollback
	if back == nil || !back.Available || back.RollbackAction != tr.back || back.EstimatedRollbackDuration == "" {
		s.Fatalf("rollback %+v, want %s", back, tr.back)
	}
	if err := CheckTargetUnchanged(s.Context(), s.admin, p, back.ExpectedCurrentValues); err != nil {
		s.Errorf("CheckTargetUnchanged() = %v", err)
	}
	r, err := Parse(&v1alpha1.KubernetesExecutionSpec{Action: back.RollbackAction, Parameters: back.RollbackParameters})
	if err != nil {
		s.Fatalf("Parse(rollback) = %v", err)
	}
	c := s.as(r.Action, nil)
	subject := newSubject("uid-of-the-way-back")
	result := Execute(s.Context(), c, s.plan(c, r, subject), Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("the way back changed nothing: %s", result.Message)
	}
	first, _ := Parse(s.spec(tr.action, tr.parameters))
	if different := describeDifferences(was, first.Action.kind.relevantValues(first.parsed, s.read(o))); len(different) > 0 {
		s.Errorf("after the way back: %v", different)
	}
	if CheckTargetUnchanged(s.Context(), s.admin, p, back.ExpectedCurrentValues) == nil {
		s.Error("the way back changed nothing of what it is to start from")
	}
}

// wantDry tries it out, and finds the object as it was.
func wantDry(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	w.dry = nil
	result := DryRun(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if d := result.DryRun; d == nil || !d.Performed || !d.Success || d.Warnings == nil || d.EstimatedImpact.ResourcesAffected == 0 {
		s.Errorf("dry run %+v", d)
	}
	if len(w.sent()) > 0 || len(w.dry) != len(p.Steps) {
		s.Errorf("sent %v for good and %v as dry runs", w.sent(), w.dry)
	}
	if live := s.read(o); live.GetResourceVersion() != o.GetResourceVersion() {
		s.Errorf("the dry run changed the object: %s", cmp.Diff(o.Object, live.Object))
	}
}

// wantOtherObject executes after the object was replaced by one of its name.
func wantOtherObject(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	s.remove(o)
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	s.create(tr.object)
	result = Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	if len(w.sent()) > 0 {
		s.Errorf("sent %v", w.sent())
	}
}

// wantOtherValues executes the plan after another client changed the values that it depends on.
func wantOtherValues(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	if tr.foreign == "" {
		s.Skip("the action depends on the object's identity alone")
	}
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	s.patch(o, tr.foreign)
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	if len(w.sent()) > 0 {
		s.Errorf("sent %v", w.sent())
	}
}

// wantConflict changes the object as another client between reading and writing.
func wantConflict(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	var once sync.Once
	w.before = func(_ int, request *http.Request) *http.Response {
		if !isDry(request) {
			once.Do(func() { s.patch(o, `{"metadata":{"labels":{"by":"somebody-else"}}}`) })
		}
		return nil
	}
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("changed nothing: %s", result.Message)
	}
}

// wantAnswerLost breaks the connection after the server has executed the request.
func wantAnswerLost(s *stage, tr trial, _ *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	var once sync.Once
	w.after = func(_ int, answer *http.Response) *http.Response {
		once.Do(func() {
			_ = answer.Body.Close()
			answer = nil
		})
		return answer
	}
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeOK)
	if !result.Changed {
		s.Errorf("says that it changed nothing: %s", result.Message)
	}
}

// wantRace changes the relevant values or replaces the object as another client, between reading
// and writing. The foreign change must be kept.
func wantRace(s *stage, tr trial, o *unstructured.Unstructured) {
	s.Helper()
	r := s.request(tr.action, tr.parameters)
	w := &wire{}
	c := s.as(r.Action, w)
	subject := newSubject("uid")
	p := s.plan(c, r, subject)
	var once sync.Once
	w.before = func(_ int, request *http.Request) *http.Response {
		if isDry(request) {
			return nil
		}
		once.Do(func() {
			if tr.foreign != "" {
				o = s.patch(o, tr.foreign)
				return
			}
			s.remove(o)
			o = s.create(tr.object)
		})
		return nil
	}
	result := Execute(s.Context(), c, p, Run{Subject: subject})
	wantCode(s.T, result, CodeGuard)
	if live := s.read(o); live.GetResourceVersion() != o.GetResourceVersion() || result.Changed {
		s.Errorf("what somebody else did is gone: %s", cmp.Diff(o.Object, live.Object))
	}
}
