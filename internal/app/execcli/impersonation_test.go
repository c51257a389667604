package execcli_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestAs covers that the API server checks the rights of the impersonated user, and those of the caller to impersonate.
func TestAs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("root", "exec", "get", "--as=alice"), cli.CodeFailed, `User "alice" cannot list resource`)
	f.wantRun(f.asUser("root", "exec", "get", "--as=alice", "--as-group=nobodies", "--as-group=others"), cli.CodeFailed, `User "alice" cannot list resource`)
	f.wantRun(f.asUser("root", "--as=alice", "exec", "get", "--as-group=others", "--as-group=system:masters"), cli.CodeOK, "No executions found")
	f.wantRun(f.asUser("root", "exec", "get", "--as-group=system:masters"), cli.CodeUsage, "--as-group needs a user")
	f.wantRun(f.asUser("root", "exec", "get", "--as="), cli.CodeUsage, "--as needs a user")
	f.wantRun(f.asUser("root", "exec", "cordon_node", "node=n1", "--name=as-alice", "--reason=test", "--as=alice"), cli.CodeFailed, `User "alice" cannot`)
	for _, decision := range []string{"approve", "reject"} { // the record would have two people
		f.wantRun(f.asUser("root", decision, "any", "--reason=test", "--as=alice", "--as-group=system:masters"), cli.CodeUsage, "--as is not possible: the record would show two people")
	}
	nobody := run{args: []string{"exec", "get", "--as=root", "--as-group=system:masters", "--namespace=" + f.namespace}, env: map[string]string{"KUBECONFIG": kubeconfig(t, "nobody", "nobodies")}}
	f.wantRun(nobody, cli.CodeFailed, `User "nobody" cannot impersonate`)
}
