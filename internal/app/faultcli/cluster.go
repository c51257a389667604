package faultcli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/releasecli"
)

// cluster is a client of the host cluster for nodes.
type cluster struct{ client.WithWatch }

// newClusterClient returns a client of the host cluster. It sends no request.
func (s *session) newClusterClient() (*cluster, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c, err := s.where.Connect(s.env, scheme, mapper)
	if err != nil {
		return nil, err
	}
	return &cluster{c}, nil
}

func explainHostError(err error, doing string) error {
	return cli.ExplainHostError(err, doing, v1alpha1.Kind)
}

// getFault reads the NodeFault of a node.
func (c *cluster) getFault(ctx context.Context, node string) (*v1alpha1.NodeFault, error) {
	var f v1alpha1.NodeFault
	err := c.Get(ctx, client.ObjectKey{Name: releasecli.BareName(node)}, &f)
	if apierrors.IsNotFound(err) && !cli.IsUnservedKind(err) {
		return nil, cli.NewError(
			fmt.Errorf("node %q has no NodeFault", releasecli.BareName(node)),
			cli.CodePrecondition,
			"fleetloop faults get   shows the nodes with faults",
		)
	}
	if err != nil {
		return nil, explainHostError(err, fmt.Sprintf("get NodeFault of node %q", releasecli.BareName(node)))
	}
	return &f, nil
}

// listFaults returns the NodeFaults of some or all nodes, by name. missing holds errors about missing
// ones.
func (c *cluster) listFaults(ctx context.Context, nodes []string) (list []v1alpha1.NodeFault, missing []error, err error) {
	if len(nodes) == 0 {
		var all v1alpha1.NodeFaultList
		if err := c.List(ctx, &all); err != nil {
			return nil, nil, explainHostError(err, "list faults")
		}
		slices.SortFunc(all.Items, func(a, b v1alpha1.NodeFault) int { return cmp.Compare(a.Name, b.Name) })
		return all.Items, nil, nil
	}
	for _, name := range nodes {
		f, err := c.getFault(ctx, name)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		list = append(list, *f)
	}
	return list, missing, nil
}

// completionTimeout limits the duration of a completion.
const completionTimeout = 2 * time.Second

// completeFaultyNodeNames completes the names of nodes with a NodeFault. An unreachable cluster yields none,
// because a completion cannot show errors.
func (s *session) completeFaultyNodeNames(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const files = cobra.ShellCompDirectiveNoFileComp
	if cli.SetHostFlagsFromContext(s.env, cmd) != nil {
		return nil, files
	}
	c, err := s.newClusterClient()
	if err != nil {
		return nil, files
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // cobra has no context if it was run without one
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	list, _, err := c.listFaults(ctx, nil)
	if err != nil {
		return nil, files
	}
	var names []cobra.Completion
	for i := range list {
		names = append(names, cobra.CompletionWithDesc(list[i].Name, string(list[i].Status.Phase)))
	}
	return names, files
}
