package action

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

type updateImageParameters struct {
	Deployment string `json:"deployment" doc:"Name of the Deployment." required:"true" format:"dns-subdomain" target:"name"`
	Namespace  string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Container  string `json:"container" doc:"Name of the container or init container." required:"true" format:"dns-label"`
	Image      string `json:"image" doc:"The new image." required:"true" format:"image"`
}

func newUpdateImageAction() *Action {
	return newAction(entry[updateImageParameters]{
		Action: Action{
			Name:        "update_image",
			Summary:     "Set the image of one container of a Deployment.",
			Kubectl:     "kubectl set image deployment/NAME CONTAINER=IMAGE",
			Kinds:       []string{kindDeployment},
			Scope:       Namespaced,
			Permissions: deploymentRights("set the image"),
			Timeout:     2 * time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "update_image",
		},
		draft: draftImageUpdate,
		values: func(p *updateImageParameters, live *unstructured.Unstructured) map[string]any {
			c, _ := findContainer(live, p.Container)
			return map[string]any{"image": c.spec["image"]}
		},
		did: "image updated",
	})
}

func draftImageUpdate(_ context.Context, _ Client, s Subject, p *updateImageParameters, live *unstructured.Unstructured) (*draft, error) {
	name := formatTarget(targetOfObject(live))
	c, ok := findContainer(live, p.Container)
	if !ok {
		return nil, noContainerError(live, p.Container)
	}
	was := c.spec["image"]
	d := &draft{before: map[string]any{"image": was}, after: map[string]any{"image": p.Image}}
	if was == p.Image {
		d.impact.Description = fmt.Sprintf("container %s of %s already has the image %s", p.Container, name, p.Image)
		return d, nil
	}
	what := fmt.Sprintf("set the image of container %s of %s from %v to %s", p.Container, name, was, p.Image)
	step, err := newContainerPatchStep(live, c, map[string]any{"image": p.Image}, s, what)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       fmt.Sprintf("%s replaces its Pods: container %s gets the image %s", name, p.Container, p.Image),
	}
	d.rollback, err = newRollbackInfo("update_image", map[string]any{
		"deployment": p.Deployment, "namespace": p.Namespace, "container": p.Container, "image": was,
	}, "30s")
	return d, err
}

type increaseResourcesParameters struct {
	Deployment    string `json:"deployment" doc:"Name of the Deployment." required:"true" format:"dns-subdomain" target:"name"`
	Namespace     string `json:"namespace" doc:"Namespace of the object." required:"true" format:"dns-label" target:"namespace"`
	Container     string `json:"container" doc:"Name of the container or init container." required:"true" format:"dns-label"`
	CPURequest    string `json:"cpuRequest" doc:"CPU request." format:"quantity-or-none"`
	CPULimit      string `json:"cpuLimit" doc:"CPU limit." format:"quantity-or-none"`
	MemoryRequest string `json:"memoryRequest" doc:"Memory request." format:"quantity-or-none"`
	MemoryLimit   string `json:"memoryLimit" doc:"Memory limit." format:"quantity-or-none"`
	AllowDecrease bool   `json:"allowDecrease" doc:"Allows to decrease a value, to remove it (none), or to add a limit where there is none. Rollbacks need this." default:"false"`
}

// A resourceChange is the change of one resource value of a container.
type resourceChange struct {
	parameter   string
	group, name string // such as limits, cpu
	want        string // empty means unchanged, "none" removes it
}

func (change resourceChange) fieldName() string { return change.group + "." + change.name }

func (p *increaseResourcesParameters) resourceChanges() []resourceChange {
	return []resourceChange{
		{"cpuRequest", "requests", "cpu", p.CPURequest},
		{"cpuLimit", "limits", "cpu", p.CPULimit},
		{"memoryRequest", "requests", "memory", p.MemoryRequest},
		{"memoryLimit", "limits", "memory", p.MemoryLimit},
	}
}

func (p *increaseResourcesParameters) requestedChanges() []resourceChange {
	return slices.DeleteFunc(p.resourceChanges(), func(change resourceChange) bool { return change.want == "" })
}

func newIncreaseResourcesAction() *Action {
	return newAction(entry[increaseResourcesParameters]{
		Action: Action{
			Name:        "increase_resources",
			Summary:     "Change the CPU or memory of one container of a Deployment.",
			Kubectl:     "kubectl set resources deployment/NAME -c CONTAINER --requests=… --limits=…",
			Kinds:       []string{kindDeployment},
			Scope:       Namespaced,
			Permissions: deploymentRights("set requests and limits"),
			Timeout:     2 * time.Minute, MaxTimeout: maxTimeout, Retries: 2,
			Risk: RiskMedium, Idempotent: true, Reversible: true, Rollback: "increase_resources",
		},
		check: func(p *increaseResourcesParameters) []string {
			if len(p.requestedChanges()) > 0 {
				return nil
			}
			return []string{"at least one of cpuRequest, cpuLimit, memoryRequest and memoryLimit is required"}
		},
		draft: draftResourceChange,
		values: func(p *increaseResourcesParameters, live *unstructured.Unstructured) map[string]any {
			c, _ := findContainer(live, p.Container)
			return currentResources(p, c)
		},
		did: "resource requirements updated",
	})
}

// currentResources returns the resource values of a container that the parameters set.
func currentResources(p *increaseResourcesParameters, c container) map[string]any {
	values := map[string]any{}
	for _, change := range p.requestedChanges() {
		values[change.fieldName()] = currentResource(c, change.group, change.name)
	}
	return values
}

// currentResource returns one resource value of a container as text, or nil.
func currentResource(c container, group, name string) any {
	value, found, err := unstructured.NestedFieldNoCopy(c.spec, "resources", group, name)
	if err != nil || !found {
		return nil
	}
	return fmt.Sprint(value) // a quantity may have been written as a number
}

func draftResourceChange(
	_ context.Context,
	_ Client,
	s Subject,
	p *increaseResourcesParameters,
	live *unstructured.Unstructured,
) (*draft, error) {
	name := formatTarget(targetOfObject(live))
	c, ok := findContainer(live, p.Container)
	if !ok {
		return nil, noContainerError(live, p.Container)
	}
	d := &draft{before: currentResources(p, c), after: map[string]any{}}
	back := map[string]any{"deployment": p.Deployment, "namespace": p.Namespace, "container": p.Container, "allowDecrease": true}
	resources := map[string]any{}
	for _, change := range p.requestedChanges() {
		field := change.fieldName()
		was := d.before[field]
		back[change.parameter] = cmp.Or(was, any(none))
		var want any // null removes the value
		if change.want != none {
			want = change.want
		}
		if equalQuantities(was, want) {
			d.after[field] = was
			continue
		}
		d.after[field] = want
		ensureMap(resources, change.group)[change.name] = want
	}
	if err := validateResourceChanges(p, c); err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		d.impact.Description = fmt.Sprintf("container %s of %s already has these resources", p.Container, name)
		return d, nil
	}
	what := fmt.Sprintf("set %s of container %s of %s", formatFields(d.after), p.Container, name)
	step, err := newContainerPatchStep(live, c, map[string]any{"resources": resources}, s, what)
	if err != nil {
		return nil, err
	}
	d.steps = []v1alpha1.PlanStep{step}
	d.impact = v1alpha1.EstimatedImpact{
		ResourcesAffected: 1,
		Description:       fmt.Sprintf("%s replaces its Pods: the resources of container %s change", name, p.Container),
	}
	d.rollback, err = newRollbackInfo("increase_resources", back, "30s")
	return d, err
}

// validateResourceChanges returns an error for values that do not fit the container.
func validateResourceChanges(p *increaseResourcesParameters, c container) error {
	var problems []string
	effective := map[string]any{}
	for _, change := range p.resourceChanges() {
		was := currentResource(c, change.group, change.name)
		effective[change.fieldName()] = was
		if change.want == "" {
			continue
		}
		effective[change.fieldName()] = change.want
		if !p.AllowDecrease && isDecrease(change, was) {
			problems = append(problems, fmt.Sprintf("%s: %s is less than %s: set allowDecrease to allow it",
				change.parameter, change.want, formatResourceOrAbsent(was)))
		}
	}
	for _, name := range []string{"cpu", "memory"} {
		request, ok := parseQuantity(effective["requests."+name])
		limit, limited := parseQuantity(effective["limits."+name])
		if ok && limited && request.Cmp(limit) > 0 {
			problems = append(problems, fmt.Sprintf("%sRequest: %s is more than the limit %s", name, request.String(), limit.String()))
		}
	}
	if len(problems) > 0 {
		return &InvalidError{Action: "increase_resources", Problems: problems}
	}
	return nil
}

// isDecrease reports whether a container gets less than before. A new limit is a decrease, and a new
// request is not.
func isDecrease(change resourceChange, was any) bool {
	had, ok := parseQuantity(was)
	want, wants := parseQuantity(change.want)
	if !ok {
		return wants && change.group == "limits"
	}
	return !wants || want.Cmp(had) < 0
}

func formatResourceOrAbsent(was any) string {
	if was == nil {
		return "without one"
	}
	return strings.TrimSpace(fmt.Sprint(was))
}

// parseQuantity parses a quantity and reports whether value is one.
func parseQuantity(value any) (quantity resource.Quantity, ok bool) {
	text, ok := value.(string)
	if !ok || text == none {
		return resource.Quantity{}, false
	}
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}

func equalQuantities(a, b any) bool {
	x, okX := parseQuantity(a)
	y, okY := parseQuantity(b)
	return okX == okY && x.Cmp(y) == 0
}
