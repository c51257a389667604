package executionapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

const (
	// The intervals between comparisons of the installed CustomResourceDefinition with the shipped one, while it
	// has all fields and while it lacks some.
	crdCheckInterval    = 5 * time.Minute
	crdOutdatedInterval = 10 * time.Second

	crdTimeout       = 30 * time.Second
	maxMissingFields = 5 // listed in the error

	crdFile = "deploy/crds/kubernetesexecution.kubernaut.io_kubernetesexecutions.yaml"
)

var errNoSchema = errors.New("the API server did not respond in time")

// crdSchemaCheck verifies that the API server stores all fields of executions. With an older
// CustomResourceDefinition, it drops fields of a spec without an error, so that approvals do not
// count. It rejects a status with such fields, so that executions do not progress. The check reads
// the schema, and the errors of status writes in case the schema cannot be read.
type crdSchemaCheck struct {
	host     kubernetes.Interface
	log      *slog.Logger
	outdated atomic.Pointer[error]

	mu         sync.Mutex
	unreadable bool            // the schema could not be read
	missing    map[string]bool // paths of fields that the API server does not store
}

// newCRDSchemaCheck builds the check and registers its metric.
func newCRDSchemaCheck(host *rest.Config, reg prometheus.Registerer, log *slog.Logger) (*crdSchemaCheck, error) {
	client, err := kubernetes.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("check the CustomResourceDefinition: %w", err)
	}
	c := &crdSchemaCheck{host: client, log: log, missing: map[string]bool{}}
	return c, registerCRDOutdatedMetric(reg, c.Ready)
}

// registerCRDOutdatedMetric registers the metric of the check.
func registerCRDOutdatedMetric(reg prometheus.Registerer, outdated func() error) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetesexecution_crd_outdated",
		Help: "1 if the installed CustomResourceDefinition of KubernetesExecution lacks fields of this controller version, 0 otherwise. While the value is 1, executions do not progress or approvals do not count. The readiness message names the fields and the command that adds them.",
	}, func() float64 {
		if outdated() != nil {
			return 1
		}
		return 0
	}))
}

// Part returns the check as a part of a process.
func (c *crdSchemaCheck) Part() lifecycle.Part {
	return lifecycle.Part{Name: "CustomResourceDefinition", Run: c.Run, Ready: c.Ready}
}

// Ready reports which fields the API server does not store.
func (c *crdSchemaCheck) Ready() error {
	if err := c.outdated.Load(); err != nil {
		return *err
	}
	return nil
}

// Run checks until ctx ends.
func (c *crdSchemaCheck) Run(ctx context.Context) error {
	for {
		wait := crdOutdatedInterval
		missing, err := c.findMissingFields(ctx)
		switch {
		case ctx.Err() != nil: // err is a consequence
		case err != nil:
			c.recordAndLogUnreadableCRD(ctx, err)
		default:
			c.updateReadinessFromMissingFields(ctx, missing)
			if len(missing) == 0 {
				wait = crdCheckInterval
			}
		}
		if err := backoff.Sleep(ctx, wait); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
}

// recordAndLogUnreadableCRD records that the schema could not be read. Fields that are known to be missing
// stay so.
func (c *crdSchemaCheck) recordAndLogUnreadableCRD(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unreadable {
		c.log.WarnContext(
			ctx,
			"schema of the CustomResourceDefinition not read, missing fields are noticed only when they are written",
			"err",
			err,
		)
	}
	c.unreadable = true
}

// updateReadinessFromMissingFields records the fields that the schema lacks.
func (c *crdSchemaCheck) updateReadinessFromMissingFields(ctx context.Context, missing []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unreadable = false
	c.missing = map[string]bool{}
	for _, path := range missing {
		c.missing[path] = true
	}
	c.recomputeReadinessLocked(ctx)
}

var (
	// undeclared matches a field of a status that the API server rejected. Its error of a
	// server-side apply names the fields only in the text.
	undeclared = regexp.MustCompile(`\.(status\S*): field not declared in schema`)
	// listIndex matches the index or the key of a list item in a path.
	listIndex = regexp.MustCompile(`\[[^]]*]`)
)

// UpdateMissingFieldsFromWrite records the fields that the API server rejected in the write of a status, or that
// it accepted.
func (c *crdSchemaCheck) UpdateMissingFieldsFromWrite(ctx context.Context, written *v1alpha1.KubernetesExecutionStatus, err error) {
	if err == nil && c.outdated.Load() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		for path := range collectValuePaths(written) {
			delete(c.missing, path)
		}
	} else {
		for _, match := range undeclared.FindAllStringSubmatch(err.Error(), -1) {
			c.missing[listIndex.ReplaceAllString(match[1], "")] = true
		}
	}
	c.recomputeReadinessLocked(ctx)
}

// recomputeReadinessLocked sets the error of Ready, and logs when the CustomResourceDefinition becomes
// outdated or up to date. The caller holds mu.
func (c *crdSchemaCheck) recomputeReadinessLocked(ctx context.Context) {
	before := c.outdated.Load()
	if len(c.missing) == 0 {
		c.outdated.Store(nil)
		if before != nil {
			c.log.InfoContext(ctx, "installed CustomResourceDefinition is up to date")
		}
		return
	}
	outdated := newOutdatedCRDError(slices.Sorted(maps.Keys(c.missing)))
	c.outdated.Store(&outdated)
	if before == nil {
		crd := v1alpha1.Resource + "." + v1alpha1.GroupVersion.Group
		c.log.ErrorContext(ctx, "installed CustomResourceDefinition is outdated, executions do not progress", "crd", crd, "err", outdated)
	}
}

// collectValuePaths returns the paths of all values in a status, like collectFieldPaths.
func collectValuePaths(s *v1alpha1.KubernetesExecutionStatus) map[string]bool {
	paths := map[string]bool{}
	text, err := json.Marshal(s)
	if err != nil {
		return paths // never happens, because a status always encodes
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return paths
	}
	addPathsWithValues(paths, value, "status")
	return paths
}

// addPathsWithValues adds the paths of all values that are not empty, and reports whether there are any.
func addPathsWithValues(paths map[string]bool, value any, at string) (found bool) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for name, field := range v {
			found = addPathsWithValues(paths, field, at+"."+name) || found
		}
	case []any:
		for _, item := range v {
			found = addPathsWithValues(paths, item, at) || found
		}
	default:
		found = true
	}
	if found {
		paths[at] = true
	}
	return found
}

func newOutdatedCRDError(missing []string) error {
	more := ""
	if n := len(missing) - maxMissingFields; n > 0 {
		missing, more = missing[:maxMissingFields], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf(
		"the CustomResourceDefinition %s.%s is outdated and lacks %s%s, so executions do not progress or approvals do not count: from the files of this version, run kubectl apply --server-side --force-conflicts -f %s",
		v1alpha1.Resource,
		v1alpha1.GroupVersion.Group,
		strings.Join(missing, ", "),
		more,
		crdFile,
	)
}

// findMissingFields returns the fields of the shipped CustomResourceDefinition that the API server
// lacks.
func (c *crdSchemaCheck) findMissingFields(ctx context.Context) ([]string, error) {
	served, err := c.fetchServedFields(ctx)
	if err != nil {
		return nil, err
	}
	shipped, err := listShippedFields()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(shipped, func(field string) bool { return slices.Contains(served, field) }), nil
}

// listShippedFields returns the fields of the shipped CustomResourceDefinition.
func listShippedFields() ([]string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(deploy.KubernetesExecutionCRD, &crd); err != nil {
		return nil, fmt.Errorf("read the shipped CustomResourceDefinition: %w", err)
	}
	var fields []string
	for _, version := range crd.Spec.Versions {
		if version.Name == v1alpha1.GroupVersion.Version {
			fields = collectFieldPaths(version.Schema.OpenAPIV3Schema, "")
		}
	}
	return fields, nil
}

// fetchServedFields returns the fields in the schema of the API server.
func (c *crdSchemaCheck) fetchServedFields(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, crdTimeout, errNoSchema)
	defer cancel()
	path := "/openapi/v3/apis/" + v1alpha1.GroupVersion.String()
	result := c.host.Discovery().RESTClient().Get().AbsPath(path).Do(ctx)
	if err := result.Error(); err != nil { // unlike the one of Raw, it has the message of the API server
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	var document struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	for name, text := range document.Components.Schemas {
		if !strings.HasSuffix(name, "."+v1alpha1.Kind) {
			continue
		}
		var schema apiextensionsv1.JSONSchemaProps
		if err := json.Unmarshal(text, &schema); err != nil {
			return nil, fmt.Errorf("get %s: %w", path, err)
		}
		return collectFieldPaths(&schema, ""), nil
	}
	return nil, fmt.Errorf(
		"the API server's OpenAPI document %s has no schema of %s: apply the CustomResourceDefinition of this version",
		path,
		v1alpha1.Kind,
	)
}

// collectFieldPaths returns the paths of all fields under spec and status.
func collectFieldPaths(s *apiextensionsv1.JSONSchemaProps, at string) (list []string) {
	for name, field := range s.Properties {
		path := strings.TrimPrefix(at+"."+name, ".")
		if path == "metadata" || path == "kind" || path == "apiVersion" {
			continue
		}
		list = append(list, path)
		list = append(list, collectFieldPaths(&field, path)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		list = append(list, collectFieldPaths(s.Items.Schema, at)...)
	}
	slices.Sort(list)
	return list
}
