package main

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// guardFolder is beside the folder of roles.
const guardFolder = "../guard/"

// writeGuard writes the policies that guard executions.
func writeGuard() error {
	if err := os.MkdirAll("deploy/guard", 0o755); err != nil { //nolint:gosec // a folder of the repository, for everyone to read
		return err
	}
	for _, f := range []file{
		{
			"guard.yaml", "Who asks for executions, who approves them and who writes their status, as the API\n" +
				"# server checks it; it warns, too, of executions where nobody looks. For another namespace put its name in the place of kubernaut-executor,\n# everywhere.", slices.Concat(guard.Objects(guard.Options{}), guard.Advice(guard.Options{})),
		},
		{
			"stamps.yaml", "Beside guard.yaml, for Kubernetes 1.36 and later: writes the requester, the approver\n" +
				"# and who cancels where a request names none.", guard.Stamps(guard.Options{}),
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
		if err := write(f); err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

// withoutStatus leaves out what a manifest does not say, and what Go types say
// of it all the same.
func withoutStatus(o runtime.Object) (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return &unstructured.Unstructured{Object: content}, nil
}
