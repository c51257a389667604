package check

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

func TestSchedule(t *testing.T) {
	begun := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	type look struct {
		Attempt int32
		Next    time.Duration // after the beginning
	}
	for after, want := range map[time.Duration]look{
		0:                      {1, 1 * time.Second},
		999 * time.Millisecond: {1, 1 * time.Second},
		1 * time.Second:        {2, 3 * time.Second},
		3 * time.Second:        {3, 7 * time.Second},
		7 * time.Second:        {4, 15 * time.Second},
		15 * time.Second:       {5, 25 * time.Second},
		24 * time.Second:       {5, 25 * time.Second},
		25 * time.Second:       {6, 35 * time.Second},
		125 * time.Second:      {16, 135 * time.Second},
		-time.Second:           {1, 1 * time.Second}, // the clock went back
	} {
		attempt, next := currentAttempt(begun, begun.Add(after))
		if diff := cmp.Diff(want, look{attempt, next.Sub(begun)}); diff != "" {
			t.Errorf("after %s:\n%s", after, diff)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		after := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "after"))
		now := begun.Add(after)
		attempt, next := currentAttempt(begun, now)
		if !next.After(now) || next.Sub(now) > 10*time.Second {
			t.Fatalf("the next look is after %s", next.Sub(now))
		}
		if following, _ := currentAttempt(begun, next); following != attempt+1 {
			t.Fatalf("look %d follows look %d", following, attempt)
		}
	})
}

func TestOtherNamespaces(t *testing.T) {
	keeps := &action.Action{Permissions: []action.Permission{{Resource: "secrets", Executor: true}}}
	plan := &v1alpha1.Plan{Target: v1alpha1.PlanTarget{Namespace: "shop"}, Steps: []v1alpha1.PlanStep{
		{Verb: "patch", Resource: "deployments", Namespace: "shop"},
		{Verb: "create", Resource: "configmaps", Namespace: "other"},
		{Verb: "delete", Resource: "configmaps", Namespace: "other"},
		{Verb: "evict", Resource: "pods", Namespace: "kube-system"},
		{Verb: "get", Resource: "pods", Namespace: "read"},
		{Verb: "patch", Resource: "nodes"},
		{Verb: "create", Resource: "secrets", Namespace: "executor"},
	}}
	if diff := cmp.Diff([]string{"other"}, otherWrittenNamespaces(plan, keeps, "executor")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"other", "executor"}, otherWrittenNamespaces(plan, &action.Action{}, "executor")); diff != "" {
		t.Errorf("an action that keeps nothing writes where executions are:\n%s", diff)
	}
}

func TestPassing(t *testing.T) {
	resource := schema.GroupResource{Resource: "deployments"}
	for name, c := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"TooMany":      {reason: "later", err: apierrors.NewTooManyRequests("", 1), want: true},
		"Internal":     {reason: "etcd has its moments", err: apierrors.NewInternalError(errors.New("")), want: true},
		"Unavailable":  {reason: "it starts", err: apierrors.NewServiceUnavailable(""), want: true},
		"Timeout":      {reason: "it was busy", err: fmt.Errorf("read: %w", apierrors.NewTimeoutError("", 1)), want: true},
		"Conflict":     {reason: "somebody was faster", err: apierrors.NewConflict(resource, "web", errors.New("")), want: true},
		"Unauthorized": {reason: "the token is new", err: apierrors.NewUnauthorized(""), want: true},
		"Forbidden":    {reason: "it stays so", err: apierrors.NewForbidden(resource, "web", errors.New(""))},
		"NotFound":     {reason: "it is an answer", err: apierrors.NewNotFound(resource, "web")},
		"Invalid":      {reason: "it is an answer", err: apierrors.NewBadRequest("")},
		"Other":        {reason: "nothing that the API server said", err: errors.New("EOF")},
	} {
		if got := isTransientAPIError(c.err); got != c.want {
			t.Errorf("%s: %t, though %s", name, got, c.reason)
		}
	}
}

func TestSayRight(t *testing.T) {
	for want, r := range map[string]action.Right{
		`patch apps/deployments/scale "web" in namespace "shop"`: {Group: "apps", Resource: "deployments", Subresource: "scale", Verb: "patch", Namespace: "shop", Name: "web"},
		`list pods in the whole cluster`:                         {Resource: "pods", Verb: "list"},
	} {
		if got := formatRight(r); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestPath(t *testing.T) {
	for want, o := range map[string]v1alpha1.Target{
		"Deployment/shop/web": {APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		"Node/worker-1":       {APIVersion: "v1", Kind: "Node", Name: "worker-1"},
		"":                    {},
	} {
		if got := formatTargetPath(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := action.TruncateText(strings.Repeat("é", 2000), maxMessage); len(got) > maxMessage || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes", len(got))
	}
}
