package executionapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy/crds"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

const (
	// crdEvery and crdAgain are the intervals between comparisons of the installed
	// CustomResourceDefinition with the shipped one. crdEvery applies while it has
	// all fields, crdAgain while it lacks some.
	crdEvery, crdAgain = 5 * time.Minute, 10 * time.Second
	crdTimeout         = 30 * time.Second
	maxMissingFields   = 5 // listed in the error
)

var errNoSchema = errors.New("the API server did not respond in time")

// schemaCheck verifies that the API server stores all fields of executions. An older
// CustomResourceDefinition drops some without an error, and then no approval counts.
type schemaCheck struct {
	host     kubernetes.Interface
	log      *slog.Logger
	outdated atomic.Pointer[error]
}

// newSchemaCheck builds the check and registers its metric.
func newSchemaCheck(host *rest.Config, reg prometheus.Registerer, log *slog.Logger) (*schemaCheck, error) {
	client, err := kubernetes.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("check the CustomResourceDefinition: %w", err)
	}
	c := &schemaCheck{host: client, log: log}
	return c, watchSchema(reg, c.Ready)
}

// watchSchema registers the metric of the check.
func watchSchema(reg prometheus.Registerer, outdated func() error) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetesexecution_crd_outdated",
		Help: "1 if the installed CustomResourceDefinition of KubernetesExecution lacks fields that this version of the controller needs, 0 otherwise. While the value is 1, the controller accepts no approvals.",
	}, func() float64 {
		if outdated() != nil {
			return 1
		}
		return 0
	}))
}

// Part returns the check as a part of a process.
func (c *schemaCheck) Part() lifecycle.Part {
	return lifecycle.Part{Name: "CustomResourceDefinition", Run: c.Run, Ready: c.Ready}
}

// Ready reports which fields the API server does not store.
func (c *schemaCheck) Ready() error {
	if err := c.outdated.Load(); err != nil {
		return *err
	}
	return nil
}

// Run checks until ctx ends.
func (c *schemaCheck) Run(ctx context.Context) error {
	for wait := time.Duration(0); backoff.Sleep(ctx, wait) == nil; {
		wait = crdAgain
		missing, err := c.missingFields(ctx)
		switch before := c.outdated.Load(); {
		case err != nil:
			c.log.DebugContext(ctx, "reading the CustomResourceDefinition failed", "err", err)
		case len(missing) > 0:
			outdated := outdatedError(missing)
			if c.outdated.Store(&outdated); before == nil {
				c.log.ErrorContext(ctx, "installed CustomResourceDefinition is outdated, approvals are not accepted", "crd", v1alpha1.Resource+"."+v1alpha1.GroupVersion.Group, "err", outdated)
			}
		default:
			wait = crdEvery
			if c.outdated.Store(nil); before != nil {
				c.log.InfoContext(ctx, "installed CustomResourceDefinition is up to date")
			}
		}
	}
	return nil
}

func outdatedError(missing []string) error {
	more := ""
	if n := len(missing) - maxMissingFields; n > 0 {
		missing, more = missing[:maxMissingFields], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("the CustomResourceDefinition %s.%s is outdated and lacks %s%s, so approvals are not accepted: run kubectl apply --server-side -f deploy/crds of this version",
		v1alpha1.Resource, v1alpha1.GroupVersion.Group, strings.Join(missing, ", "), more)
}

// missingFields returns the fields of the shipped CustomResourceDefinition that the API server
// lacks.
func (c *schemaCheck) missingFields(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, crdTimeout, errNoSchema)
	defer cancel()
	path := "/openapi/v3/apis/" + v1alpha1.GroupVersion.String()
	body, err := c.host.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	var served struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(body, &served); err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	var shipped apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(crds.KubernetesExecutions, &shipped); err != nil {
		return nil, fmt.Errorf("read the shipped CustomResourceDefinition: %w", err)
	}
	var want []string
	for _, v := range shipped.Spec.Versions {
		if v.Name == v1alpha1.GroupVersion.Version {
			want = fieldPaths(v.Schema.OpenAPIV3Schema, "")
		}
	}
	for name, text := range served.Components.Schemas {
		if !strings.HasSuffix(name, "."+v1alpha1.Kind) {
			continue
		}
		var s apiextensionsv1.JSONSchemaProps
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("get %s: %w", path, err)
		}
		is := fieldPaths(&s, "")
		return slices.DeleteFunc(want, func(f string) bool { return slices.Contains(is, f) }), nil
	}
	return nil, fmt.Errorf("the API server's OpenAPI document %s has no schema of %s: apply the CustomResourceDefinition of this version", path, v1alpha1.Kind)
}

// fieldPaths returns the paths of all fields under spec and status.
func fieldPaths(s *apiextensionsv1.JSONSchemaProps, at string) (list []string) {
	for name, field := range s.Properties {
		path := strings.TrimPrefix(at+"."+name, ".")
		if path == "metadata" || path == "kind" || path == "apiVersion" {
			continue
		}
		list = append(list, path)
		list = append(list, fieldPaths(&field, path)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		list = append(list, fieldPaths(s.Items.Schema, at)...)
	}
	slices.Sort(list)
	return list
}
