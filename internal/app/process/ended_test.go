package process_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A lineWriter hands on each line that is logged.
type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestAPartThatEndsByItselfIsToldBeforeTheOthersHaveStopped(t *testing.T) {
	lines := make(lineWriter, 100)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p, err := process.New(ctx, "test", process.Config{MetricsAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0"}, lines)
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is full")
	told := errors.New("nobody was told why")
	slow := func(stop context.Context) error {
		<-stop.Done()
		for {
			select {
			case line := <-lines:
				if strings.Contains(line, `"part":"database"`) && strings.Contains(line, broken.Error()) {
					told = nil
					return nil
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
	err = p.Run(
		ctx, nil,
		lifecycle.Part{Name: "database", Run: func(context.Context) error { return broken }},
		lifecycle.Part{Name: "slow", Run: slow},
	)
	if !errors.Is(err, broken) {
		t.Errorf("Run() = %v, want %v", err, broken)
	}
	if told != nil {
		t.Error(told)
	}
}
