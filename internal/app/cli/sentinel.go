package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

const sentinelConfigKind = "SentinelConfig"

// sentinelSession is one running command about SentinelConfigs.
type sentinelSession struct {
	env       Env
	where     HostFlags
	namespace string
	format    string
}

// NewSentinelCommand returns the command sentinel, which explains the SentinelConfigs of a host cluster.
//
// It reads SentinelConfigs from the Kubernetes API and the fleet from the fleet API, both with the credentials of the
// user. It reads no Secret and asks no running sentinel, and it changes nothing.
func NewSentinelCommand(env Env) *cobra.Command {
	s := &sentinelSession{env: env.withDefaults()}
	cmd := &cobra.Command{
		Use:   "sentinel",
		Short: "Explain what the SentinelConfigs of the host cluster publish",
		Long: "Explain what the SentinelConfigs of the host cluster publish, and why. The commands read the fleet from the fleet\n" +
			"API of this command line. They publish nothing.",
		Args: RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	s.where.AddFlags(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&s.namespace, "sentinel-namespace", "", "`namespace` of the SentinelConfigs (default: all)")
	for _, sub := range []*cobra.Command{s.newWhyCommand(), s.newPlanCommand(), s.newCoverageCommand()} {
		AddOutputFlag(sub, &s.format, sentinelFormats())
		cmd.AddCommand(sub)
	}
	return cmd
}

func (s *sentinelSession) newWhyCommand() *cobra.Command {
	var sentinel string
	cmd := &cobra.Command{
		Use:   "why KIND NAME",
		Short: "Explain why SentinelConfigs do or do not publish an event for a resource",
		Long: "Show which rule of each SentinelConfig applies to a resource, its inputs, and when an event is due next. The\n" +
			"history of a running sentinel is not shown.",
		Example: "  fleetloop sentinel why cluster eu-1\n  fleetloop sentinel why nodepool eu-1/workers --sentinel=nodepools -o json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: s.withClients(func(ctx context.Context, fleet *fleetclient.Client, configs []v1alpha1.SentinelConfig, args []string) (any, error) {
			return explainSentinelDecisions(ctx, fleet, selectNamedConfigs(configs, sentinel), args)
		}),
	}
	cmd.Flags().StringVar(&sentinel, "sentinel", "", "`name` of the SentinelConfig (default: all of the kind)")
	return cmd
}

func (s *sentinelSession) newPlanCommand() *cobra.Command {
	var limit uint16
	cmd := &cobra.Command{
		Use:     "plan NAME",
		Short:   "Show which events a SentinelConfig would publish now",
		Long:    "Show how many resources a SentinelConfig watches, which are due now and why, the expected rate of events, and an\nexample of their data.",
		Example: "  fleetloop sentinel plan clusters --sentinel-namespace=hyperfleet-system",
		Args:    cobra.ExactArgs(1),
		RunE: s.withClients(func(ctx context.Context, fleet *fleetclient.Client, configs []v1alpha1.SentinelConfig, args []string) (any, error) {
			configs = selectNamedConfigs(configs, args[0])
			switch len(configs) {
			case 0:
				return nil, newNoSentinelConfigsError(fmt.Sprintf("there is no SentinelConfig %q", args[0]))
			case 1:
				w, err := newSentinelWatch(&configs[0], fleet)
				if err != nil {
					return nil, err
				}
				return inspect.Plan(ctx, w, int(limit), func(int) {})
			}
			return nil, NewUsageError(fmt.Errorf("%d namespaces have a SentinelConfig %q", len(configs), args[0]), "set --sentinel-namespace")
		}),
	}
	cmd.Flags().Uint16Var(&limit, "limit", 10, "maximum `number` of due resources to list")
	return cmd
}

func (s *sentinelSession) newCoverageCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "coverage",
		Short:   "Show resources that no or several SentinelConfigs watch",
		Long:    "Show whether exactly one SentinelConfig watches each cluster and node pool. Others are grouped by labels.",
		Example: "  fleetloop sentinel coverage",
		Args:    cobra.NoArgs,
		RunE: s.withClients(func(ctx context.Context, fleet *fleetclient.Client, configs []v1alpha1.SentinelConfig, _ []string) (any, error) {
			return checkSentinelCoverage(ctx, fleet, configs)
		}),
	}
}

func sentinelFormats() []string { return []string{terminal.FormatYAML, terminal.FormatJSON} }

// withClients returns the function of a command that prints the result of report.
func (s *sentinelSession) withClients(
	report func(context.Context, *fleetclient.Client, []v1alpha1.SentinelConfig, []string) (any, error),
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := CheckFormat(cmd, s.format, sentinelFormats()); err != nil {
			return err
		}
		fleet, err := NewFleetClient(cmd, s.env)
		if err != nil {
			return err
		}
		defer fleet.CloseIdle()
		configs, err := s.listConfigs(cmd.Context())
		if err != nil {
			return err
		}
		result, err := report(cmd.Context(), fleet, configs, args)
		if err != nil {
			return err
		}
		return WriteYAMLOrJSON(s.env.Stdout, s.format, result)
	}
}

// listConfigs reads the SentinelConfigs of the namespace.
func (s *sentinelSession) listConfigs(ctx context.Context) ([]v1alpha1.SentinelConfig, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind(sentinelConfigKind), meta.RESTScopeNamespace)
	c, err := s.where.Connect(s.env, scheme, mapper)
	if err != nil {
		return nil, err
	}
	var list v1alpha1.SentinelConfigList
	if err := c.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
		return nil, ExplainHostError(err, "list SentinelConfigs", sentinelConfigKind)
	}
	return list.Items, nil
}

// selectNamedConfigs returns the SentinelConfigs with a name; all without one.
func selectNamedConfigs(configs []v1alpha1.SentinelConfig, name string) []v1alpha1.SentinelConfig {
	return slices.DeleteFunc(configs, func(c v1alpha1.SentinelConfig) bool { return name != "" && c.Name != name })
}

func newNoSentinelConfigsError(what string) error {
	return NewError(errors.New(what), CodePrecondition, "kubectl get sentinelconfigs -A   lists all")
}

func newSentinelWatch(c *v1alpha1.SentinelConfig, fleet *fleetclient.Client) (*inspect.Watch, error) {
	name := c.Namespace + "/" + c.Name
	w, err := inspect.NewWatchOfSpec(name, &c.Spec, fleet.Raw())
	if err != nil {
		return nil, fmt.Errorf("SentinelConfig %s is invalid: %w", name, err)
	}
	return w, nil
}

// stateInvalidConfig is the state of a resource for a SentinelConfig that does not work.
const stateInvalidConfig inspect.State = "invalid_config"

// explainSentinelDecisions returns the decision of each SentinelConfig of its kind about a resource.
func explainSentinelDecisions(
	ctx context.Context,
	fleet *fleetclient.Client,
	configs []v1alpha1.SentinelConfig,
	args []string,
) (any, error) {
	k, refs, err := resource.ParseRefs(args, "")
	if err == nil && len(refs) != 1 {
		err = errors.New("name one resource")
	}
	if err != nil {
		return nil, NewUsageError(err, "fleetloop sentinel why cluster eu-1   is an example")
	}
	item, err := resource.Resolve(ctx, fleet, refs[0])
	if err != nil {
		return nil, err
	}
	var reports []*inspect.WhyReport
	for i := range configs {
		if configs[i].Spec.ResourceType != k.Collection {
			continue
		}
		w, err := newSentinelWatch(&configs[i], fleet)
		if err != nil {
			reports = append(
				reports,
				&inspect.WhyReport{
					Config:     configs[i].Namespace + "/" + configs[i].Name,
					Collection: k.Collection,
					State:      stateInvalidConfig,
					Rule:       err.Error(),
				},
			)
			continue
		}
		r, err := inspect.ExplainDecision(ctx, w, item.Resource.ID, inspect.NoRecord{})
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	if len(reports) == 0 {
		return nil, newNoSentinelConfigsError("no SentinelConfig watches " + k.Collection)
	}
	return reports, nil
}

// sentinelCoverage is the result of checkSentinelCoverage.
type sentinelCoverage struct {
	*inspect.CoverageReport

	// SeveralAPIs lists the fleet APIs of the SentinelConfigs if they differ. The report counts all of them
	// for one fleet.
	SeveralAPIs []string `json:"several_apis,omitempty"`
}

func checkSentinelCoverage(ctx context.Context, fleet *fleetclient.Client, configs []v1alpha1.SentinelConfig) (any, error) {
	if len(configs) == 0 {
		return nil, newNoSentinelConfigsError("there are no SentinelConfigs")
	}
	apis := map[string]bool{}
	var watches []*inspect.Watch
	for i := range configs {
		w, err := newSentinelWatch(&configs[i], fleet)
		if err != nil {
			return nil, err
		}
		watches, apis[w.ConfiguredEndpoint] = append(watches, w), true
	}
	report, err := inspect.CheckCoverage(ctx, watches, []string{v1.CollectionClusters, v1.CollectionNodePools}, func(string, int) {})
	if err != nil {
		return nil, err
	}
	c := sentinelCoverage{CoverageReport: report}
	if len(apis) > 1 {
		c.SeveralAPIs = slices.Sorted(maps.Keys(apis))
	}
	return c, nil
}
