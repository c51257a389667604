package runner

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

// Variables of the environment, which are the input of a Job. One contains the plan as JSON, so that
// text from an execution is only ever read as data. ReadInput accepts a plan only with its own hash.
//
// The specification requires TargetNamespace and ResourceName;
// the runner reads both from the plan.
const (
	EnvTargetNamespace = "TARGET_NAMESPACE"
	EnvResourceName    = "RESOURCE_NAME"

	EnvPlan     = "ACTION_PLAN"
	EnvPlanHash = "ACTION_PLAN_HASH"
	EnvDeadline = "ACTION_DEADLINE" // the time limit of a runner from its start, such as 290s
	EnvUID      = "EXECUTION_UID"
	EnvCreated  = "EXECUTION_CREATED"

	// EnvFailures and EnvDisruptions are the numbers of earlier attempts, as the Job
	// controller counts them on the Pod. Unset means none.
	EnvFailures    = "ACTION_FAILURES"
	EnvDisruptions = "ACTION_DISRUPTIONS"

	// EnvTerminationLog is the file for the result.
	EnvTerminationLog = "TERMINATION_LOG"
)

// MaxPlanBytes is the maximum size of a plan in bytes. The API server accepts a few times more for a
// whole Job.
const MaxPlanBytes = 64 << 10

// Input is the task of a runner.
type Input struct {
	Plan    *v1alpha1.Plan
	Subject action.Subject
	Within  time.Duration // from the start of the runner
	Attempt int32         // starts at 1; set by ReadInput
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
	if len(plan) > MaxPlanBytes {
		return nil, fmt.Errorf("plan is too large for a Job: %d bytes, at most %d are allowed: split the change into several executions", len(plan), MaxPlanBytes)
	}
	variables := []Variable{
		{EnvTargetNamespace, in.Plan.Target.Namespace},
		{EnvResourceName, in.Plan.Target.Name},
		{EnvUID, string(in.Subject.UID)},
		{EnvCreated, in.Subject.Created.UTC().Format(time.RFC3339Nano)},
		{EnvDeadline, in.Within.String()},
		{EnvPlanHash, in.Plan.Hash},
		{EnvPlan, plan},
	}
	for _, v := range variables {
		if strings.Contains(v.Value, "$") {
			return nil, fmt.Errorf("%s must not contain $: %q", v.Name, v.Value)
		}
	}
	return variables, nil
}

// ReadInput decodes an environment. If it returns an error, the input must not be used.
func ReadInput(lookupEnv func(string) (string, bool)) (Input, error) {
	in := Input{Plan: &v1alpha1.Plan{}}
	var errs []error
	need := func(name string) string {
		value, _ := lookupEnv(name)
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
		return value
	}
	if text := need(EnvPlan); text != "" {
		if err := json.Unmarshal([]byte(text), in.Plan); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", EnvPlan, err))
		} else if err := verifyPlanHash(in.Plan, need(EnvPlanHash)); err != nil {
			errs = append(errs, err)
		}
	}
	in.Subject.UID = types.UID(need(EnvUID))
	var err error
	if text := need(EnvCreated); text != "" {
		if in.Subject.Created, err = time.Parse(time.RFC3339, text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", EnvCreated, err))
		}
	}
	if text := need(EnvDeadline); text != "" {
		if in.Within, err = time.ParseDuration(text); err != nil || in.Within <= 0 {
			errs = append(errs, fmt.Errorf("%s: invalid duration %q", EnvDeadline, text))
		}
	}
	in.Attempt = 1
	for _, name := range []string{EnvFailures, EnvDisruptions} {
		n, err := readAttemptCount(lookupEnv, name)
		if in.Attempt += n; err != nil {
			errs = append(errs, err)
		}
	}
	return in, errors.Join(errs...)
}

func readAttemptCount(lookupEnv func(string) (string, bool), name string) (int32, error) {
	text, _ := lookupEnv(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: invalid number of attempts %q", name, text)
	}
	return int32(n), nil
}

// verifyPlanHash returns an error if the plan does not match its hash.
func verifyPlanHash(p *v1alpha1.Plan, hash string) error {
	switch is := action.HashPlanEffect(p); {
	case hash == "": // already reported
		return nil
	case hash != p.Hash:
		return fmt.Errorf("%s is %q, but the plan has %q", EnvPlanHash, hash, p.Hash)
	case hash != is:
		return fmt.Errorf("%s is %q, but the hash of the plan is %q: the plan was changed, or a controller of another version wrote it", EnvPlanHash, hash, is)
	}
	return nil
}
