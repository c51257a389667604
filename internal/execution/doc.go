// Package execution defines the life cycle of a KubernetesExecution: the phases and their
// transitions, the input and output of policies, the approval of plans, the limits of concurrent
// executions, and the reported changes.
//
// An action runs only with a plan that passed the checks, that the policy allowed, and that was
// approved if the policy requires it. Exactly that plan runs. An execution whose correctness
// cannot be established fails with a reason. This package and its subpackages make these
// decisions; package operator carries them out.
package execution
