// Package input encodes the input of a Job as environment variables for the runner in its
// container.
//
// One variable contains the plan as JSON, so that text from an execution is only ever read as
// data. Read accepts a plan only with its own hash.
package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// Variables of the environment. The specification requires TargetNamespace and ResourceName;
// the runner reads both from the plan.
const (
	TargetNamespace = "TARGET_NAMESPACE"
	ResourceName    = "RESOURCE_NAME"

	Plan     = "ACTION_PLAN"
	PlanHash = "ACTION_PLAN_HASH"
	Deadline = "ACTION_DEADLINE" // the time limit of a runner from its start, such as 290s
	UID      = "EXECUTION_UID"
	Created  = "EXECUTION_CREATED"

	// Failures and Disruptions are the numbers of earlier attempts, as the Job
	// controller counts them on the Pod. Unset means none.
	Failures    = "ACTION_FAILURES"
	Disruptions = "ACTION_DISRUPTIONS"

	// TerminationLog is the file for the result.
	TerminationLog = "TERMINATION_LOG"
)

// MaxPlan is the maximum size of a plan in bytes. The API server accepts a few times more for a
// whole Job.
const MaxPlan = 64 << 10

// Input is the task of a runner.
type Input struct {
	Plan    *v1alpha1.Plan
	Subject action.Subject
	Within  time.Duration // from the start of the runner
	Attempt int32         // starts at 1; set by Read
}

// Variable is an environment variable. Its value contains no $, because Kubernetes would expand it
// as a reference.
type Variable struct{ Name, Value string }

// Environment encodes in as variables in a fixed order.
func (in Input) Environment() ([]Variable, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // escaping would cost six bytes per character
	if err := e.Encode(in.Plan); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	plan := strings.ReplaceAll(strings.TrimSpace(b.String()), "$", `\u0024`) // in JSON, $ occurs only in strings
	if len(plan) > MaxPlan {
		return nil, fmt.Errorf("plan is too large for a Job: %d bytes, at most %d are allowed: split the change into several executions", len(plan), MaxPlan)
	}
	variables := []Variable{
		{TargetNamespace, in.Plan.Target.Namespace},
		{ResourceName, in.Plan.Target.Name},
		{UID, string(in.Subject.UID)},
		{Created, in.Subject.Created.UTC().Format(time.RFC3339Nano)},
		{Deadline, in.Within.String()},
		{PlanHash, in.Plan.Hash},
		{Plan, plan},
	}
	for _, v := range variables {
		if strings.Contains(v.Value, "$") {
			return nil, fmt.Errorf("%s must not contain $: %q", v.Name, v.Value)
		}
	}
	return variables, nil
}

// Read decodes an environment. If it returns an error, the input must not be used.
func Read(env func(string) (string, bool)) (Input, error) {
	in := Input{Plan: &v1alpha1.Plan{}}
	var errs []error
	need := func(name string) string {
		value, _ := env(name)
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
		return value
	}
	if text := need(Plan); text != "" {
		if err := json.Unmarshal([]byte(text), in.Plan); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", Plan, err))
		} else if err := verifyPlan(in.Plan, need(PlanHash)); err != nil {
			errs = append(errs, err)
		}
	}
	in.Subject.UID = types.UID(need(UID))
	var err error
	if text := need(Created); text != "" {
		if in.Subject.Created, err = time.Parse(time.RFC3339, text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", Created, err))
		}
	}
	if text := need(Deadline); text != "" {
		if in.Within, err = time.ParseDuration(text); err != nil || in.Within <= 0 {
			errs = append(errs, fmt.Errorf("%s: invalid duration %q", Deadline, text))
		}
	}
	in.Attempt = 1
	for _, name := range []string{Failures, Disruptions} {
		n, err := readCount(env, name)
		if in.Attempt += n; err != nil {
			errs = append(errs, err)
		}
	}
	return in, errors.Join(errs...)
}

func readCount(env func(string) (string, bool), name string) (int32, error) {
	text, _ := env(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: invalid number of attempts %q", name, text)
	}
	return int32(n), nil
}

// verifyPlan returns an error if the plan does not match its hash.
func verifyPlan(p *v1alpha1.Plan, hash string) error {
	switch is := action.Hash(p); {
	case hash == "": // already reported
		return nil
	case hash != p.Hash:
		return fmt.Errorf("%s is %q, but the plan has %q", PlanHash, hash, p.Hash)
	case hash != is:
		return fmt.Errorf("%s is %q, but the hash of the plan is %q: the plan was changed, or a controller of another version wrote it", PlanHash, hash, is)
	}
	return nil
}
