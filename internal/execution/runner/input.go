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
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // escaping would cost six bytes per character
	if err := encoder.Encode(in.Plan); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	// In JSON, $ occurs only in strings, which can escape it.
	plan := strings.ReplaceAll(strings.TrimSpace(encoded.String()), "$", `\u0024`)
	if len(plan) > MaxPlanBytes {
		return nil, fmt.Errorf("plan is too large for a Job: %d bytes, at most %d are allowed: "+
			"split the change into several executions", len(plan), MaxPlanBytes)
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

// ReadInput decodes an environment. Its error names all variables that are missing or wrong; the input
// must not be used then.
func ReadInput(lookupEnv func(string) (string, bool)) (Input, error) {
	plan, planErr := readPlan(lookupEnv)
	uid, uidErr := readRequired(lookupEnv, EnvUID)
	created, createdErr := readCreated(lookupEnv)
	within, withinErr := readDeadline(lookupEnv)
	failures, failuresErr := readAttemptCountOrZero(lookupEnv, EnvFailures)
	disruptions, disruptionsErr := readAttemptCountOrZero(lookupEnv, EnvDisruptions)
	input := Input{
		Plan:    plan,
		Subject: action.Subject{UID: types.UID(uid), Created: created},
		Within:  within,
		Attempt: 1 + failures + disruptions,
	}
	return input, errors.Join(planErr, uidErr, createdErr, withinErr, failuresErr, disruptionsErr)
}

// readRequired returns the value of a variable, which must not be empty.
func readRequired(lookupEnv func(string) (string, bool), name string) (string, error) {
	value, _ := lookupEnv(name)
	if value == "" {
		return "", fmt.Errorf("%s is not set", name)
	}
	return value, nil
}

// readPlan decodes the plan and compares it with its hash. The plan is never nil.
func readPlan(lookupEnv func(string) (string, bool)) (*v1alpha1.Plan, error) {
	plan := &v1alpha1.Plan{}
	text, err := readRequired(lookupEnv, EnvPlan)
	if err != nil {
		return plan, err
	}
	if err := json.Unmarshal([]byte(text), plan); err != nil {
		return plan, fmt.Errorf("%s: %w", EnvPlan, err)
	}
	hash, err := readRequired(lookupEnv, EnvPlanHash)
	if err != nil {
		return plan, err
	}
	return plan, verifyPlanHash(plan, hash)
}

func readCreated(lookupEnv func(string) (string, bool)) (time.Time, error) {
	text, err := readRequired(lookupEnv, EnvCreated)
	if err != nil {
		return time.Time{}, err
	}
	created, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", EnvCreated, err)
	}
	return created, nil
}

func readDeadline(lookupEnv func(string) (string, bool)) (time.Duration, error) {
	text, err := readRequired(lookupEnv, EnvDeadline)
	if err != nil {
		return 0, err
	}
	within, err := time.ParseDuration(text)
	if err != nil || within <= 0 {
		return 0, fmt.Errorf("%s: invalid duration %q", EnvDeadline, text)
	}
	return within, nil
}

// readAttemptCountOrZero reads a number of earlier attempts, which is zero if the variable is unset.
func readAttemptCountOrZero(lookupEnv func(string) (string, bool), name string) (int32, error) {
	text, _ := lookupEnv(name)
	if text == "" {
		return 0, nil
	}
	count, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: invalid number of attempts %q", name, text)
	}
	return int32(count), nil
}

// verifyPlanHash returns an error if the plan does not match its hash.
func verifyPlanHash(p *v1alpha1.Plan, hash string) error {
	if hash != p.Hash {
		return fmt.Errorf("%s is %q, but the plan has %q", EnvPlanHash, hash, p.Hash)
	}
	computed := action.HashPlanEffect(p)
	if hash != computed {
		return fmt.Errorf("%s is %q, but the hash of the plan is %q: the plan was changed, "+
			"or a controller of another version wrote it", EnvPlanHash, hash, computed)
	}
	return nil
}
