//go:build !linux

package realnode

import (
	"context"
	"errors"
	"log/slog"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

var errLinux = errors.New("a real node requires Linux")

type program struct{}

// Isolate returns an error, as it requires Linux.
func Isolate(context.Context, *slog.Logger) (inside bool, code int, err error) {
	return false, 0, errLinux
}

// CheckRequirements returns an error, as a real node requires Linux.
func CheckRequirements() error { return errLinux }

func startNode(context.Context, *kubebed.Bed, Options) (*Node, error) { return nil, errLinux }

// LogTails returns the empty string.
func (n *Node) LogTails() string { return "" }

// Stop does nothing.
func (n *Node) Stop() error { return nil }
