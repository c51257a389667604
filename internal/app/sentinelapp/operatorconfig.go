package sentinelapp

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// OperatorConfig is the configuration of a sentinel binary that runs SentinelConfigs. It has no
// file.
type OperatorConfig struct {
	Process
	HyperFleetMetrics
	SpecDefaults

	Kubernetes kube.Config `key:"kubernetes"`

	// All runs every SentinelConfig of the namespace.
	All bool `key:"all" flag:"all" doc:"run every SentinelConfig of the namespace, each in its own sentinel"`

	// Namespace is the namespace of the objects. Empty means that of the process.
	Namespace string `key:"namespace" flag:"namespace" doc:"namespace of the SentinelConfigs (default: POD_NAMESPACE, then the namespace of the pod or of the kubeconfig context)"`

	// PodName identifies this replica.
	PodName string `key:"pod_name" env:"POD_NAME" doc:"name of this replica in the shard group of a SentinelConfig (default: the host name with a random suffix)"`
}

// OperatorDefaults returns the defaults that differ from those of the parts.
func OperatorDefaults() OperatorConfig {
	return OperatorConfig{Process: OverriddenDefaults().Process}
}

// isFilePath reports whether --config has the form of a file path. Otherwise it is the name of a
// SentinelConfig.
func isFilePath(name string) bool {
	ext := filepath.Ext(name)
	return name == "" || strings.ContainsRune(name, filepath.Separator) || ext == ".yaml" || ext == ".yml"
}

const (
	flagAll        = "all"
	flagNamespace  = "namespace"
	flagKubeconfig = "kubeconfig"
)

// runsOperator reports whether the flags select SentinelConfigs.
func (c *command) runsOperator(flags *pflag.FlagSet) bool {
	return !isFilePath(c.file) || flags.Changed(flagAll) && flags.Lookup(flagAll).Value.String() == "true"
}

// rejectOperatorOnlyFlags rejects flags that require SentinelConfigs.
func (c *command) rejectOperatorOnlyFlags(flags *pflag.FlagSet) error {
	if !isFilePath(c.file) {
		return fmt.Errorf("--config %q is the name of a SentinelConfig, which this command cannot read: see kubectl describe sentinelconfig %s, "+
			"or pass the path of a file, for example ./sentinel-config.yaml", c.file, c.file)
	}
	for _, name := range []string{flagAll, flagNamespace, flagKubeconfig} {
		if flags.Changed(name) {
			return fmt.Errorf("--%s requires SentinelConfigs: pass the name of one in --config, or --all, instead of a file", name)
		}
	}
	return nil
}

// loadOperatorSettings reads the configuration of the operator.
func (c *command) loadOperatorSettings(cmd *cobra.Command) (*settings.Report, error) {
	if err := c.rejectFileOnlyFlags(cmd.Flags()); err != nil {
		return nil, err
	}
	report, err := settings.Load(&c.onHost, settings.Source{Env: c.env, Flags: cmd.Flags()})
	if err != nil {
		return nil, err
	}
	if c.onHost.ShutdownTimeout >= c.onHost.StopTimeout {
		return nil, report.WrapWithOrigin("stop_timeout", newStopTimeoutError(c.onHost.StopTimeout, c.onHost.ShutdownTimeout))
	}
	return report, nil
}

// rejectFileOnlyFlags rejects flags that conflict with SentinelConfigs.
func (c *command) rejectFileOnlyFlags(flags *pflag.FlagSet) error {
	if c.file != "" && flags.Changed(flagAll) {
		return fmt.Errorf("--all and --config %q are mutually exclusive", c.file)
	}
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	defaults := OperatorDefaults()
	settings.AddFlags(known, &defaults)
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		if c.isFileFlag(f.Name) && known.Lookup(f.Name) == nil {
			errs = append(errs, fmt.Errorf("--%s requires a configuration file; with SentinelConfigs, set it in the spec", f.Name))
		}
	})
	return errors.Join(errs...)
}

// isFileFlag reports whether a flag belongs to the settings of the configuration file.
func (*command) isFileFlag(name string) bool {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	defaults := OverriddenDefaults()
	settings.AddFlags(fs, &defaults)
	return fs.Lookup(name) != nil
}

// runOperator runs SentinelConfigs until the context of the command ends.
func (c *command) runOperator(cmd *cobra.Command) error {
	if _, err := c.loadOperatorSettings(cmd); err != nil {
		return err
	}
	cfg := c.onHost
	host, err := kube.NewRESTConfig(cfg.Kubernetes, userAgent)
	if err != nil && c.file != "" {
		return fmt.Errorf(
			"connect to Kubernetes for the SentinelConfig --config %q (for a file, pass a path such as ./%s.yaml): %w",
			c.file,
			c.file,
			err,
		)
	}
	if err != nil {
		return err
	}
	if cfg.Namespace == "" {
		if cfg.Namespace, err = cfg.Kubernetes.FindPodOrKubeconfigNamespace(c.env); err != nil {
			return err
		}
	}
	p, err := process.New(cmd.Context(), "sentinel", cfg.Process, c.stderr)
	if err != nil {
		return err
	}
	cfg.addToMetricsServerIfEnabled(p)
	parts, live, err := Operator{
		Host:      host,
		Namespace: cfg.Namespace,
		Name:      c.file,
		Identity:  cfg.PodName,
		Defaults:  cfg.SpecDefaults,
		Env:       c.env,
	}.BuildParts(p)
	if err != nil {
		return err
	}
	which := c.file
	if which == "" {
		which = "all"
	}
	p.Log.InfoContext(cmd.Context(), "operator started", "config", which, "namespace", cfg.Namespace, "host", host.Host)
	return p.Run(cmd.Context(), live, parts...)
}
