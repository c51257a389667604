package faultcli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// releaseOptions holds the flags of a release.
type releaseOptions struct {
	everything bool
	reason     string
	rearm      bool
}

func (s *session) releaseCommand() *cobra.Command {
	var r releaseOptions
	cmd := &cobra.Command{
		Use:   "release NODE ... | --all",
		Short: "Release nodes: remove the cordon and taints of the controller",
		Long: "Release nodes: remove the cordon, taints, labels and annotations that node-fault-controller added. Cordons and\n" +
			"taints of others stay. The command reads only the nodes, so that it also works when the controller is\n" +
			"uninstalled.\n\n" +
			"The controller treats a release as a manual override: it leaves the node alone while the same faults\n" +
			"last. With --allow-requarantine it may quarantine the node again at once. Use --all after the controller\n" +
			"was uninstalled: it leaves no annotation on any node.",
		Example: "  fleetloop faults release gpu-node-01 --reason='the fan was replaced'\n" +
			"  fleetloop faults release --all --reason='node faults are uninstalled'",
		ValidArgsFunction: s.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.everything == (len(args) > 0) {
				return usageErrorf(cmd, "node names or --all missing")
			}
			return s.runRelease(cmd.Context(), args, r)
		},
	}
	cmd.Flags().BoolVar(&r.everything, "all", false, "release all nodes")
	cmd.Flags().StringVar(&r.reason, "reason", "", "`reason` of the release, for the history and change events")
	cmd.Flags().BoolVar(&r.rearm, "allow-requarantine", false, "let the controller quarantine the nodes for the same faults again")
	return cmd
}

func (s *session) runRelease(ctx context.Context, args []string, r releaseOptions) error {
	c, err := s.connectCluster()
	if err != nil {
		return err
	}
	names := args
	if r.everything {
		r.rearm = true
		if names, err = c.nodeNames(ctx); err != nil {
			return err
		}
	}
	var errs []error
	done, released := 0, 0
	for _, name := range names {
		node, was, err := s.releaseNode(ctx, c, bareName(name), r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done++
		switch {
		case was:
			released++
			err = s.printLine("node %s: released%s", node.Name, staysCordonedNote(node))
		case !r.everything:
			s.printNote("node %s: no changes of the controller found%s", node.Name, staysCordonedNote(node))
		}
		if err != nil {
			return err
		}
	}
	if r.everything && released == 0 && len(errs) == 0 {
		s.printNote("No node has changes of the controller.")
	}
	return cli.JoinHostErrors(errs, done)
}

// staysCordonedNote returns the end of the message about a released node that stays cordoned, else "".
func staysCordonedNote(node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "; it stays cordoned, because someone else cordoned it"
	}
	return ""
}

// releaseNode removes the changes of Fleetloop from a node, and reports whether there were any.
func (s *session) releaseNode(ctx context.Context, c *cluster, name string, r releaseOptions) (node *corev1.Node, released bool, err error) {
	node, released, err = kube.ChangeNode(ctx, c, name, func(n *corev1.Node) (*corev1.Node, bool) {
		return quarantine.Release(n, s.env.Now(), r.reason, !r.rearm)
	})
	if apierrors.IsNotFound(err) {
		return nil, false, cli.NewError(fmt.Errorf("node %q not found", name), cli.CodePrecondition, "kubectl get nodes   lists the nodes")
	}
	if err != nil {
		return nil, false, explainError(err, fmt.Sprintf("release node %q", name))
	}
	return node, released, nil
}

// pageSize is the number of nodes per request.
const pageSize = 500

// nodeNames returns the names of all nodes.
func (c *cluster) nodeNames(ctx context.Context) ([]string, error) {
	var names []string
	page := &corev1.NodeList{}
	for {
		if err := c.List(ctx, page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, explainError(err, "list nodes")
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
