package main

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// guardFolder is next to the folder of roles.
const guardFolder = "../admission-policies/"

// writeGuardManifests writes the policies that guard executions.
func writeGuardManifests() error {
	if err := os.MkdirAll("deploy/admission-policies", 0o755); err != nil { //nolint:gosec // a folder of the repository, for everyone to read
		return err
	}
	for _, f := range []file{
		{
			"validating.yaml", "ValidatingAdmissionPolicies that verify who requests and approves executions and who writes their\n" +
				"# status, and that warn of executions in other namespaces. For another namespace replace kubernaut-executor,\n# everywhere.", slices.Concat(guard.ValidatingPolicyObjects(guard.Options{}), guard.WrongNamespaceWarningObjects(guard.Options{})),
		},
		{
			"mutating.yaml", "MutatingAdmissionPolicies for Kubernetes 1.36 and later, in addition to validating.yaml: they set an omitted\n" +
				"# requester, approver or canceller.", guard.MutatingPolicyObjects(guard.Options{}),
		},
	} {
		f.name = guardFolder + f.name
		for i, o := range f.objects {
			bare, err := withoutStatus(o)
			if err != nil {
				return fmt.Errorf("write %s: %w", f.name, err)
			}
			f.objects[i] = bare
		}
		if err := writeManifestFile(f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

// withoutStatus removes fields that a manifest does not set, but that Go types always marshal.
func withoutStatus(o runtime.Object) (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}
