package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// fakeConditions hold by what their module says: true, false, error, or a time
// in seconds from which on they hold.
type fakeConditions struct {
	mu     sync.Mutex
	inputs []json.RawMessage
	held   int // places
}

// ReservePlace gives a place.
func (c *fakeConditions) ReservePlace(string) (execution.Place, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	return c, nil
}

// ReleasePlace takes it back.
func (c *fakeConditions) ReleasePlace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held--
}

// CheckModule knows one module that is malformed.
func (c *fakeConditions) CheckModule(_ context.Context, module string) error {
	return map[string]error{
		"malformed": fmt.Errorf("%w: line 3", execution.ErrMalformed),
		"killed":    fmt.Errorf("%w: it took too much", execution.ErrKilled),
		"later":     &execution.RetryError{After: time.Second, Err: errors.New("others come first")},
	}[module]
}

func (c *fakeConditions) EvaluateModule(ctx context.Context, module string, input any, now time.Time) (bool, string, error) {
	if err := c.CheckModule(ctx, module); err != nil {
		return false, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, ok := input.(json.RawMessage)
	if !ok {
		return false, "", errors.New("the input is no JSON")
	}
	c.inputs = append(c.inputs, raw)
	switch module {
	case "true":
		return true, "", nil
	case "false":
		return false, "there is no room", nil
	case "error":
		return false, "", errors.New("rule allow is undefined")
	}
	after, err := time.ParseDuration(module)
	if err != nil {
		return false, "", err
	}
	return !now.Before(begun.Add(after)), "not yet", nil
}
