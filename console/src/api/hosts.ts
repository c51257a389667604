// From what the console server sends of a host cluster to what the views show.
// Parts of an execution come as the API server has them; its object has the rest.
import type { ConditionResult, CoverageFinding, Execution, FaultNode, Permission, Sentinel, Session, SinkDelivery } from './types'

export interface RawExecution {
  host: string
  namespace: string
  name: string
  uid?: string
  action: string
  target?: string
  environment?: string
  phase: string
  phase_since?: string
  reason?: string
  message?: string
  outcome?: string
  created: string
  requested_by?: string
  requested_by_agent?: string
  request_reason?: string
  rollback_of?: string
  approval?: {
    state?: string
    required?: boolean
    requiredCount?: number
    requesterCannotApprove?: boolean
    groups?: string[]
    countedDecisions?: { approver: string; decision: string; reason?: string; planHash?: string }[]
    decidedAt?: string
  }
  expires?: string
  plan_hash?: string
  impact?: string
  undelivered_change_events?: number
  plan?: {
    hash?: string
    diff?: string
    steps?: { description?: string; verb?: string; resource?: string; subresource?: string; namespace?: string; name?: string }[]
    impact?: { resourcesAffected?: number; replicasChanged?: string; description?: string }
    rollback?: RawRollback
  }
  policy?: {
    policyName?: string
    allowed: boolean
    requiredApproval?: boolean
    requiredDryRun?: boolean
    violations?: string[]
    warnings?: string[]
    mode?: string
    evaluatedAt?: string
  }
  rollback?: RawRollback
  can?: Partial<Record<string, Permission>>
  command?: Partial<Record<string, string>>
  object?: RawObject
}

interface RawRollback { available: boolean; reason?: string; rollbackAction?: string }

interface RawCondition { conditionType: string; evaluated: boolean; passed: boolean; required: boolean; errorMessage?: string }

interface RawObject {
  spec?: { parameters?: Record<string, unknown>; dryRunMode?: string; approvals?: { approver: string; decision: string; reason?: string; planHash?: string }[] }
  status?: {
    jobName?: string
    phaseTransitions?: { phase: string; at: string }[]
    pendingChangeEvents?: { action: string; at: string; sinks: string[] }[]
    executionResults?: { podLogs?: string }
    validationResults?: {
      parameterValidation?: boolean
      rbacValidation?: boolean
      resourceExists?: boolean
      validationTime?: string
      dryRunResults?: { performed: boolean; success: boolean; warnings?: string[]; errors?: string[] }
      preConditionResults?: RawCondition[]
      postConditionResults?: RawCondition[]
    }
  }
}

/** readExecution returns the execution as the views show it. */
export function readExecution(raw: RawExecution): Execution {
  const { spec = {}, status = {} } = raw.object ?? {}
  const checks = status.validationResults
  const { approval, plan, policy } = raw
  const decisions = spec.approvals ?? approval?.countedDecisions ?? []
  const required = approval?.required ? Math.max(1, approval.requiredCount ?? 1) : 0
  const rollback = raw.rollback ?? plan?.rollback
  return {
    host: raw.host, namespace: raw.namespace, name: raw.name, created: raw.created, action: raw.action, environment: raw.environment,
    target: raw.target?.replace('/', ' '), parameters: spec.parameters, reason: raw.request_reason, requested_by: raw.requested_by, requested_by_agent: raw.requested_by_agent,
    phase: raw.phase, phase_since: raw.phase_since, outcome: raw.outcome, reason_detail: raw.reason, message: raw.message, expires: raw.expires,
    dry_run: spec.dryRunMode === 'Only', plan_hash: raw.plan_hash, job: status.jobName, log: status.executionResults?.podLogs,
    impact: plan?.impact?.description ?? raw.impact,
    plan: plan && {
      diff: plan.diff, resources_affected: plan.impact?.resourcesAffected, replicas_changed: plan.impact?.replicasChanged,
      steps: plan.steps?.map((s) => ({ ...s, resource: [s.resource, s.subresource].filter(Boolean).join('/') })),
    },
    rollback: rollback && { available: rollback.available, action: rollback.rollbackAction, reason: rollback.reason },
    rollback_of: raw.rollback_of,
    policy: policy && {
      name: policy.policyName, allowed: policy.allowed, required_approval: policy.requiredApproval, required_dry_run: policy.requiredDryRun,
      violations: policy.violations, warnings: policy.warnings, mode: policy.mode, evaluated: policy.evaluatedAt,
    },
    dry_run_result: checks?.dryRunResults,
    // A check that has not run is false, so the checks count after they have all run.
    checks: checks?.validationTime ? { parameters: checks.parameterValidation === true, permissions: checks.rbacValidation === true, target: checks.resourceExists === true } : undefined,
    pre_conditions: checks?.preConditionResults?.map(readCondition),
    post_conditions: checks?.postConditionResults?.map(readCondition),
    approval: approval && {
      required, groups: approval.groups, not_requester: approval.requesterCannotApprove,
      received: (approval.countedDecisions ?? []).filter((d) => d.decision === 'Approve').length,
      decisions: decisions.map((d) => ({ ...d, current: !d.planHash || d.planHash === raw.plan_hash })),
    },
    phases: status.phaseTransitions,
    undelivered_change_events: raw.undelivered_change_events ?? status.pendingChangeEvents?.length, waiting_change_events: status.pendingChangeEvents,
    can: raw.can, command: raw.command, object: raw.object,
  }
}

function readCondition(c: RawCondition): ConditionResult {
  return { type: c.conditionType, passed: c.passed, evaluated: c.evaluated, required: c.required, message: c.errorMessage }
}

export interface RawNode {
  host: string
  name: string
  stage: string
  since?: string
  reason?: string
  blocking?: { pod: string; namespace: string; budget?: string; message?: string; since?: string }[]
  fault?: { phase?: string; code?: string; session?: string; faults?: number; remedy?: string }
  undelivered_change_events?: number
  can?: Partial<Record<string, Permission>>
  command?: Partial<Record<string, string>>
  object?: {
    spec?: { faults?: { source: string; check: string; entity?: string; errorCodes?: string[]; fatal?: boolean; message?: string; detectedAt?: string }[] }
    status?: {
      desiredActions?: { remedies?: string[] }
      drain?: { state?: string; deadline?: string; remaining?: number }
      history?: { sequence?: number; at?: string; action?: string; message?: string; outcome?: string }[]
      sinkDeliveries?: Record<string, RawSinkDelivery>
      undeliveredChangeEvents?: number
    }
  }
}

interface RawSinkDelivery { processedSequence: number; lastDeliveredAt?: string; lastError?: string; lastFailedAt?: string; rejected?: number[]; dropped?: number }

function readDelivery(sink: string, d: RawSinkDelivery, sequences: number[]): SinkDelivery {
  const waiting = sequences.filter((s) => s > d.processedSequence).length
  const lost = (d.rejected?.length ?? 0) + (d.dropped ?? 0)
  const state = waiting > 0 ? (d.lastError ? 'retrying' : 'pending') : lost > 0 ? 'rejected' : 'delivered'
  return { sink, state, waiting, lost, delivered_at: d.lastDeliveredAt, error: d.lastError, failed_at: d.lastFailedAt }
}

/** readNode returns the node as the views show it. */
export function readNode(raw: RawNode): FaultNode {
  const { spec = {}, status = {} } = raw.object ?? {}
  const draining = status.drain?.state === 'Running'
  const phase = raw.fault?.phase
  // A node in quarantine that no rule repairs waits for a person, or for the fault to end.
  const unrepaired = phase === 'Quarantined' && (status.desiredActions?.remedies?.length ?? 0) === 0
  return {
    host: raw.host, name: raw.name, stage: raw.stage, since: raw.since ?? '', reason: raw.reason, phase, waits: (raw.blocking?.length ?? 0) > 0 || phase === 'Pending' || phase === 'Stuck' || unrepaired, fault_code: raw.fault?.code, session: raw.fault?.session, remedy: raw.fault?.remedy,
    // A budget has a namespace; other causes are single words.
    blocking: (raw.blocking ?? []).map((b) => ({ ...b, budget: b.budget?.includes('/') || b.budget === 'disruption-budget' ? b.budget : undefined, blocked_by: b.budget })),
    deadline: draining ? status.drain?.deadline : undefined, pods_left: draining ? status.drain?.remaining : undefined,
    faults: spec.faults?.map((f) => ({ ...f, error_codes: f.errorCodes, detected: f.detectedAt })),
    history: status.history?.map((h) => ({ at: h.at ?? '', action: h.action ?? '', message: h.message, outcome: h.outcome })),
    undelivered_change_events: raw.undelivered_change_events ?? status.undeliveredChangeEvents, can: raw.can, command: raw.command,
    deliveries: Object.entries(status.sinkDeliveries ?? {}).toSorted().map(([sink, d]) => readDelivery(sink, d, status.history?.map((h) => h.sequence ?? 0) ?? [])),
  }
}

interface RawGroup { collection: string; labels: string; others?: boolean; resources: number; sentinels?: string[]; example_id: string; example_name?: string }

export interface RawCoverage {
  collections: { collection: string; resources: number; unwatched: number; overlapping: number; invalid: number; inexact?: string }[]
  gaps: RawGroup[]
  overlaps: RawGroup[]
  several_apis?: string[]
  as_of: string
}

export interface CheckedCoverage { gaps: CoverageFinding[]; overlaps: CoverageFinding[]; resources: number; invalid: number; inexact: string[]; several_apis: string[]; as_of: string }

/** readCoverage returns the result of a check of every resource as the view shows it. */
export function readCoverage(raw: RawCoverage): CheckedCoverage {
  const finding = (g: RawGroup): CoverageFinding => ({
    resource_type: g.collection, selector: g.labels, others: g.others, count: g.resources, sentinels: g.sentinels,
    examples: [{ id: g.example_id, name: g.example_name || g.example_id }],
  })
  const sum = (of: 'resources' | 'invalid') => raw.collections.reduce((n, c) => n + c[of], 0)
  return {
    gaps: raw.gaps.map(finding), overlaps: raw.overlaps.map(finding), resources: sum('resources'), invalid: sum('invalid'),
    inexact: raw.collections.flatMap((c) => (c.inexact ? [`${c.collection}: ${c.inexact}`] : [])), several_apis: raw.several_apis ?? [], as_of: raw.as_of,
  }
}

/** seesAll reports whether a person's counts are of all tenants, as those of the sentinels are. */
export const seesAll = (session?: Session) => session !== undefined && !session.user?.tenant

/** checkCounts compares how many resources there are with how many the sentinels watch, as far as counts can tell. */
export function checkCounts(sentinels: Sentinel[], totals: Partial<Record<string, { total: number }>>): { gaps: CoverageFinding[]; overlaps: CoverageFinding[] } {
  const found: { gaps: CoverageFinding[]; overlaps: CoverageFinding[] } = { gaps: [], overlaps: [] }
  for (const type of new Set(sentinels.map((s) => s.resource_type ?? ''))) {
    const total = totals[type]?.total
    const of = sentinels.filter((s) => s.resource_type === type)
    if (total === undefined || of.some((s) => !s.ready || !s.last_poll)) continue
    const watched = of.reduce((n, s) => n + s.resources_watched, 0)
    if (watched < total) found.gaps.push({ resource_type: type, count: total - watched })
    if (watched > total) found.overlaps.push({ resource_type: type, count: watched - total, sentinels: of.map((s) => `${s.namespace}/${s.name}`) })
  }
  return found
}
