// Package execution says how a KubernetesExecution goes from being asked for to
// its end: the phases and what leads from one to the next, what a policy is
// asked and answers, and what is told about it.
//
// It promises that nothing is done without a plan that the checks passed, that
// the policy allowed, and that was approved where the policy wants it; that what
// runs is that plan and no other; and that an execution which cannot be told to
// be right ends as failed and says why. All of that is decided here and in the
// packages below; operator is what carries it out.
package execution
