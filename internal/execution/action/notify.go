package action

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type notifyParameters struct {
	Message string `json:"message" doc:"The message; one line." required:"true" format:"text"`
}

func newNotifyOnlyAction() *Action {
	return newAction(entry[notifyParameters]{
		Action: Action{
			Name:    "notify_only",
			Summary: "Record a message as a Kubernetes event and in the audit. Changes nothing.",
			Scope:   Namespaced,
			Timeout: 30 * time.Second, MaxTimeout: maxTimeout,
			Risk: RiskLow, Idempotent: true, ReadOnly: true, NoJob: true,
		},
		target: func(*notifyParameters) v1alpha1.Target { return v1alpha1.Target{} },
		draft: func(_ context.Context, _ Client, _ Subject, p *notifyParameters, _ *unstructured.Unstructured) (*draft, error) {
			return &draft{impact: v1alpha1.EstimatedImpact{Description: p.Message}}, nil
		},
		run: func(_ context.Context, c Client, pl *v1alpha1.Plan, p *notifyParameters, r Run) Result {
			w := newAttempt(c, pl, r)
			w.report.logLine(p.Message)
			return w.buildResult(nil)
		},
	})
}
