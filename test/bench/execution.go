package main

// executionBenches are those of executions, and of the policies that they ask.
func executionBenches() []bench {
	return []bench{executionWritesBench(), executionJobsBench(), executionParentBench(), executionPlanBench(), executionInlineBench(), executionWaitingBench(), decisionBench()}
}
