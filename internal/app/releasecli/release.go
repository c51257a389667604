// Package releasecli is the command that releases nodes from the node fault controller.
//
// The command line of fleetloop and the binary of the controller have it, so that nodes can be
// released with either. It links neither the fleet API nor its database.
package releasecli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// Env holds the inputs and outputs of the command.
type Env struct {
	// Program is the beginning of the examples, such as "fleetloop faults".
	Program        string
	Stdout, Stderr io.Writer
	Now            func() time.Time

	// Connect returns a client of the host cluster that knows nodes.
	Connect func() (client.Client, error)
	// ExplainError adds advice to the error of a request about a node. Node is empty for a list.
	ExplainError func(err error, doing, node string) error
	// JoinErrors joins the errors about several nodes. succeeded is the number of successes.
	JoinErrors func(errs []error, succeeded int) error
}

// releaser is one running command.
type releaser struct {
	env Env

	everything bool
	reason     string
	rearm      bool
}

// NewReleaseNodesCommand returns the command "release".
func NewReleaseNodesCommand(env Env) *cobra.Command {
	r := &releaser{env: env}
	cmd := &cobra.Command{
		Use:   "release NODE ... | --all",
		Short: "Release nodes: remove the cordon and taints of the controller",
		Long: "Release nodes: remove the cordon, taints, labels and annotations that node-fault-controller added. Cordons and\n" +
			"taints of others stay. The command reads only the nodes, so that it also works when the controller is\n" +
			"uninstalled.\n\n" +
			"The controller treats a release as a manual override: it leaves the node alone while the same faults\n" +
			"last. With --allow-requarantine it may quarantine the node again at once. Use --all after the controller\n" +
			"was uninstalled: it leaves no annotation on any node.",
		Example: "  " + env.Program + " release gpu-node-01 --reason='the fan was replaced'\n" +
			"  " + env.Program + " release --all --reason='node faults are uninstalled'",
		Args: func(_ *cobra.Command, args []string) error {
			if r.everything == (len(args) > 0) {
				return errors.New("node names or --all missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return r.releaseNodes(cmd.Context(), args) },
	}
	cmd.Flags().BoolVar(&r.everything, "all", false, "release all nodes")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`text` that says why, for the history and change events")
	cmd.Flags().BoolVar(&r.rearm, "allow-requarantine", false, "let the controller quarantine the nodes for the same faults again")
	return cmd
}

func (r *releaser) releaseNodes(ctx context.Context, names []string) error {
	c, err := r.env.Connect()
	if err != nil {
		return err
	}
	if r.everything {
		r.rearm = true
		if names, err = r.listNodeNames(ctx, c); err != nil {
			return err
		}
	}
	var errs []error
	done, released := 0, 0
	for _, name := range names {
		node, was, err := r.releaseNode(ctx, c, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done++
		switch {
		case was:
			released++
			if _, err := fmt.Fprintf(r.env.Stdout, "node %s: released%s\n", node.Name, staysCordonedNote(node)); err != nil {
				return err
			}
		case !r.everything:
			r.printNote("node %s: no changes of the controller found%s", node.Name, staysCordonedNote(node))
		}
	}
	if r.everything && released == 0 && len(errs) == 0 {
		r.printNote("No node has changes of the controller.")
	}
	return r.env.JoinErrors(errs, done)
}

// printNote prints progress.
func (r *releaser) printNote(format string, args ...any) {
	_, _ = fmt.Fprintf(r.env.Stderr, format+"\n", args...) // a closed stderr is no error
}

// staysCordonedNote returns the end of the message about a released node that stays cordoned, else "".
func staysCordonedNote(node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "; it stays cordoned, because someone else cordoned it"
	}
	return ""
}

// releaseNode removes the changes of Fleetloop from a node, and reports whether there were any.
func (r *releaser) releaseNode(ctx context.Context, c client.Client, name string) (node *corev1.Node, released bool, err error) {
	node, released, err = kube.UpdateNodeRetryingConflicts(ctx, c, BareName(name), func(n *corev1.Node) (*corev1.Node, bool) {
		return quarantine.Release(n, r.env.Now(), r.reason, !r.rearm)
	})
	if err != nil {
		return nil, false, r.env.ExplainError(err, fmt.Sprintf("release node %q", BareName(name)), BareName(name))
	}
	return node, released, nil
}

// BareName removes the kind prefix of kubectl from a name.
func BareName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// pageSize is the number of nodes per request.
const pageSize = 500

// listNodeNames returns the names of all nodes.
func (r *releaser) listNodeNames(ctx context.Context, c client.Client) ([]string, error) {
	var names []string
	page := &corev1.NodeList{}
	for {
		if err := c.List(ctx, page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, r.env.ExplainError(err, "list nodes", "")
		}
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
		if page.Continue == "" {
			return names, nil
		}
		page = &corev1.NodeList{ListMeta: page.ListMeta}
	}
}
