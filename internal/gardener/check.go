package gardener

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Level is the severity of a finding.
type Level int

// Levels of findings.
const (
	// Fine means that everything works.
	Fine Level = iota
	// Worse is a condition that reduces a function.
	Worse
	// Broken is a condition under which no Shoot can be created.
	Broken
)

// String returns the name of the level.
func (l Level) String() string {
	switch l {
	case Fine:
		return "ok"
	case Worse:
		return "warning"
	case Broken:
		return "error"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// A CheckResult is the result of a check.
type CheckResult struct {
	Level   Level
	Subject string // what was checked, in a few words
	Message string
}

// CheckAccess checks that Gardener is reachable and grants the required permissions. bindingName
// is the name of the credentials binding of the Shoots, empty for none.
func (c *Client) CheckAccess(ctx context.Context, bindingName string) []CheckResult {
	api := checkAPIReachable(ctx, c.ns)
	findings := []CheckResult{api}
	if api.Level == Broken {
		return findings // every other check would report the same error
	}
	findings = append(findings, c.checkNamespaceAccess(ctx), checkCredentialsBinding(ctx, c.ns, bindingName))
	for _, need := range listRequiredPermissions() {
		findings = append(findings, checkPermission(ctx, c.ns, need))
	}
	return findings
}

func checkAPIReachable(ctx context.Context, ns *shootNamespace) CheckResult {
	subject := "API " + shoot.APIVersion
	if err := ns.api.sendAndDecode(ctx, apiRequest{method: http.MethodGet, path: shootsAPI, unlimited: true}, nil); err != nil {
		return CheckResult{Broken, subject, wrapWithErrorClass(err, "request to Gardener").Error()}
	}
	return CheckResult{Fine, subject, "reachable"}
}

func (c *Client) checkNamespaceAccess(ctx context.Context) CheckResult {
	subject := "namespace " + c.ns.name
	_, err := c.ns.getNamespaceMeta(ctx, false)
	if isMissingRight(err) {
		return CheckResult{Worse, subject, "not permitted to get it; if it does not exist, every Shoot is treated as deleted"}
	}
	if err != nil {
		return CheckResult{Broken, subject, wrapWithErrorClass(err, "get").Error()}
	}
	name, err := c.FindProjectName(ctx)
	if err != nil {
		return CheckResult{Worse, subject, err.Error()}
	}
	return CheckResult{Fine, subject, fmt.Sprintf("belongs to project %q", name)}
}

func checkCredentialsBinding(ctx context.Context, ns *shootNamespace, bindingName string) CheckResult {
	if bindingName == "" {
		return CheckResult{Worse, "credentials binding", "not configured; Gardener rejects Shoots with workers without one"}
	}
	subject := "credentials binding " + bindingName
	path := bindingsAPI + "/namespaces/" + ns.name + "/credentialsbindings/" + url.PathEscape(bindingName)
	err := ns.api.sendAndDecode(ctx, apiRequest{method: http.MethodGet, path: path, unlimited: true}, nil)
	switch {
	case err == nil:
		return CheckResult{Fine, subject, "found"}
	case isObjectNotFound(err, "credentialsbindings"):
		return CheckResult{Broken, subject, fmt.Sprintf("not found in namespace %q", ns.name)}
	case isMissingRight(err):
		return CheckResult{Worse, subject, "not permitted to get it"}
	default:
		return CheckResult{Broken, subject, wrapWithErrorClass(err, "get").Error()}
	}
}

// A requiredPermission is a required permission, and the effect of its absence.
type requiredPermission struct {
	verb    string
	level   Level
	without string
}

func listRequiredPermissions() []requiredPermission {
	return []requiredPermission{
		{"get", Broken, "Shoots cannot be updated or deleted"},
		{"create", Broken, "Shoots cannot be created"},
		{"patch", Broken, "Shoots cannot be created, updated or deleted"},
		{"delete", Broken, "Shoots cannot be deleted"},
		{"list", Worse, "drift is not detected, and Shoots are polled individually"},
		{"watch", Worse, "Shoots are polled, so status updates are delayed"},
	}
}

func checkPermission(ctx context.Context, ns *shootNamespace, permission requiredPermission) CheckResult {
	subject := "permission to " + permission.verb + " shoots"
	allowed, err := ns.isShootVerbAllowed(ctx, permission.verb)
	switch {
	case err != nil:
		return CheckResult{Worse, subject, wrapWithErrorClass(err, "check permission").Error()}
	case !allowed:
		return CheckResult{permission.level, subject, "denied: " + permission.without}
	default:
		return CheckResult{Fine, subject, "granted"}
	}
}
