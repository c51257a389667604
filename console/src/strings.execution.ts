// The English texts that only the view Execution has. They load with it.
import { S as shared } from './strings'

export const S = {
  ...shared,
  nothing: 'nothing',
  copyName: 'Copy name', copyHash: 'Copy hash',
  policyRules: 'Policy',
  planChanges: 'What would change', plan: 'plan', steps: 'Requests to the API server', noPlan: 'There is no plan yet.', request: 'Request', assistant: 'Assistant', noReason: 'no reason given', target: 'Target', hostCluster: 'Host cluster', objects: 'Objects changed', replicas: 'Replicas', parameters: 'Parameters', rollbackOf: 'Rolls back',
  policyDecision: 'Policy decision', allowed: 'Allowed', allowedIfApproved: 'Allowed if approved', denied: 'Denied', requires: 'Requires', anApproval: 'an approval', aDryRun: 'a dry run', mode: 'Mode', evaluated: 'Evaluated', violation: 'Violation', warning: 'Warning', noPolicy: 'No policy was evaluated yet.',
  approvals: 'Approvals', whoMay: (groups: string[], notRequester: boolean) => `${groups.length ? `Members of ${groups.join(' or ')}` : 'Everyone with the right to approve'}${notRequester ? ', except the requester' : ''}.`, approved: 'approved', rejected: 'rejected', otherPlan: 'another plan', nobodyYet: 'Nobody has decided yet.', noApprovalNeeded: 'No approval is needed.',
  rollback: 'Rollback', reversible: 'Can be rolled back', irreversible: 'Cannot be rolled back', rollbackBy: 'Only on request, as a new execution of', rollbackUnknown: 'Known when the plan is made.', checks: 'Checks', checkNames: { parameters: 'Parameters', permissions: 'Permissions', target: 'Target exists' }, passed: 'passed', notPassed: 'failed', notYet: 'not yet', optionalCheck: 'warns only', before: 'before', after: 'after', noChecks: 'No check has run yet.',
  phases: 'Phases', log: 'Log of the Job', follow: 'Follow', noLogYet: 'The action has not started.', waitingForLog: 'Waiting for the first line…', audit: 'Audit', event: 'Event', noAudit: 'The audit is written while the execution runs.', object: 'Object', showYaml: 'Show as YAML',
  decision: 'Decision', replanned: 'The plan has changed since you opened this page', replannedHint: 'Look at it again. An approval of the earlier plan does not count.', mayI: (who: string, assistant: string | undefined, what: string, host: string) => `${assistant ? `The assistant ${assistant} asks for ${who}` : `${who} asks`} on ${host}: ${what}`, rollbackEnds: 'Rollback possible until', notOffered: (verbs: string, why: string) => `${verbs} is not offered: ${why}`, notAllowed: 'You may not decide about this execution.',
  decideTitles: { approve: (name: string) => `Approve ${name}`, reject: (name: string) => `Reject ${name}`, cancel: (name: string) => `Cancel ${name}`, rollback: (name: string) => `Roll back ${name}` },
  decideDone: { approve: (name: string) => `Approved ${name}.`, reject: (name: string) => `Rejected ${name}.`, cancel: (name: string) => `Cancelled ${name}.`, rollback: (name: string) => `Requested the rollback of ${name}.` },
  approveExplain: (what: string, hash: string) => `You approve exactly this plan (${hash}): ${what}. If it changes, your approval does not count.`, rejectExplain: 'The execution ends as failed. One rejection is enough.', cancelExplain: 'An action that has not started does not start. A running one is asked to stop.', rollbackExplain: 'A new execution restores the values from before. It may need an approval, too.',
  waitsForSinks: (sinks: string[]) => `waits for ${sinks.join(', ')}`,
}
