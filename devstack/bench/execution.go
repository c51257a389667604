package main

// executionBenches returns the benches of executions, and of the policies that they use.
func executionBenches() []bench {
	return []bench{
		executionWritesBench(),
		executionJobsBench(),
		executionParentBench(),
		executionPlanBench(),
		executionInlineBench(),
		executionWaitingBench(),
		decisionBench(),
	}
}
