import { describe, expect, test } from 'vitest'
import { checkCounts, type RawExecution, readCoverage, readExecution, readNode } from '../src/api/hosts'
import { withReason } from '../src/lib/cli'

const raw: RawExecution = {
  host: 'h', namespace: 'ns', name: 'e', created: '2026-01-01T00:00:00Z', action: 'scale_deployment', target: 'Deployment/shop/web', phase: 'waiting_approval', plan_hash: 'abc',
  request_reason: 'more traffic', reason: 'target_busy', approval: { required: true, requiredCount: 2, groups: ['sre'], countedDecisions: [{ approver: 'bob', decision: 'Approve' }] },
}

describe('an execution', () => {
  test('of a list has no plan', () => {
    const e = readExecution({ ...raw, impact: 'from 3 to 9' })
    expect(e).toMatchObject({ target: 'Deployment shop/web', reason: 'more traffic', reason_detail: 'target_busy', impact: 'from 3 to 9', plan: undefined, checks: undefined })
    expect(e.approval).toMatchObject({ required: 2, received: 1, groups: ['sre'] })
  })
  test('of its own has what its object says', () => {
    const e = readExecution({
      ...raw, plan: { diff: '+a', steps: [{ verb: 'patch', resource: 'deployments', subresource: 'scale' }], impact: { description: 'scale', resourcesAffected: 1 } },
      object: { spec: { approvals: [{ approver: 'bob', decision: 'Approve', planHash: 'abc' }, { approver: 'eve', decision: 'Approve', planHash: 'old' }] }, status: { jobName: 'j', pendingChangeEvents: [{ action: 'execution-started', at: 't', sinks: ['pagerduty'] }, { action: 'execution-approved', at: 't', sinks: ['slack'] }], validationResults: { parameterValidation: true, validationTime: 't' } } },
    })
    expect(e.plan?.steps?.[0]?.resource).toBe('deployments/scale')
    expect(e.approval?.decisions.map((d) => d.current)).toEqual([true, false])
    expect(e).toMatchObject({ job: 'j', undelivered_change_events: 2, checks: { parameters: true, permissions: false, target: false } })
  })
  test('without a needed approval needs none', () => expect(readExecution({ ...raw, approval: { required: false } }).approval?.required).toBe(0))
})

test('a node names a budget apart from other causes', () => {
  const n = readNode({ host: 'h', name: 'n', stage: 'draining', blocking: [{ pod: 'a', namespace: 'x', budget: 'x/pdb' }, { pod: 'b', namespace: 'x', budget: 'bare-pod' }] })
  expect(n.blocking?.map((b) => [b.budget, b.blocked_by])).toEqual([['x/pdb', 'x/pdb'], [undefined, 'bare-pod']])
})

test('a node names the sinks that lack change events', () => {
  const history = [1, 2, 3].map((sequence) => ({ sequence, action: 'cordon' }))
  const sinkDeliveries = {
    slack: { processedSequence: 1, lastError: 'timeout', lastFailedAt: 'f', rejected: [1] }, all: { processedSequence: 3, lastDeliveredAt: 'd' },
    pager: { processedSequence: 3, rejected: [2], dropped: 4 }, late: { processedSequence: 2 },
  }
  expect(readNode({ host: 'h', name: 'n', stage: 'back', object: { status: { history, sinkDeliveries } } }).deliveries).toEqual([
    { sink: 'all', state: 'delivered', waiting: 0, lost: 0, delivered_at: 'd' },
    { sink: 'late', state: 'pending', waiting: 1, lost: 0 },
    { sink: 'pager', state: 'rejected', waiting: 0, lost: 5 },
    { sink: 'slack', state: 'retrying', waiting: 2, lost: 1, error: 'timeout', failed_at: 'f' },
  ])
})

test.each([
  ['Draining', {}, [{ pod: 'a', namespace: 'x' }], true], ['Draining', {}, [], false], ['Pending', {}, [], true], ['Stuck', {}, [], true],
  ['Quarantined', {}, [], true], ['Quarantined', { remedies: ['reboot'] }, [], false], ['Healthy', {}, [], false],
])('a node in phase %s with %j and blocking pods %j waits: %s', (phase, desiredActions, blocking, want) =>
  expect(readNode({ host: 'h', name: 'n', stage: 's', fault: { phase }, blocking, object: { status: { desiredActions } } }).waits).toBe(want))

test('what is watched is counted', () => {
  const s = (resource_type: string, resources_watched: number, ready = true) => ({ namespace: 'f', name: `s${resources_watched}`, ready, last_poll: 't', resource_type, resources_watched, events_published: 0 })
  const totals = { clusters: { total: 10 }, nodepools: { total: 5 } }
  expect(checkCounts([s('clusters', 4), s('clusters', 6), s('nodepools', 5)], totals)).toEqual({ gaps: [], overlaps: [] })
  expect(checkCounts([s('clusters', 4)], totals).gaps).toEqual([{ resource_type: 'clusters', count: 6 }])
  expect(checkCounts([s('clusters', 6), s('clusters', 5)], totals).overlaps[0]).toMatchObject({ count: 1, sentinels: ['f/s6', 'f/s5'] })
  expect(checkCounts([s('clusters', 4, false)], totals).gaps).toEqual([])
})

test('a check of each resource names one of each group', () => {
  const group = { collection: 'nodepools', labels: 'zone=a', resources: 3, example_id: '7' }
  const got = readCoverage({
    collections: [{ collection: 'nodepools', resources: 9, unwatched: 3, overlapping: 3, invalid: 1, inexact: 'no cursor' }, { collection: 'clusters', resources: 2, unwatched: 0, overlapping: 0, invalid: 0 }],
    gaps: [{ ...group, example_name: 'p' }], overlaps: [{ ...group, sentinels: ['f/a', 'f/b'] }], as_of: 't',
  })
  expect(got).toMatchObject({ resources: 11, invalid: 1, inexact: ['nodepools: no cursor'] })
  expect(got.gaps).toMatchObject([{ resource_type: 'nodepools', selector: 'zone=a', count: 3, examples: [{ id: '7', name: 'p' }] }])
  expect(got.overlaps).toMatchObject([{ sentinels: ['f/a', 'f/b'], examples: [{ id: '7', name: '7' }] }])
})

test.each([
  ['fleetloop reject e --reason=TEXT', "it's", "fleetloop reject e --reason='it'\\''s'"], ['kubectl annotate node n hold=REASON', 'fan', 'kubectl annotate node n hold=fan'],
  ['fleetloop approve e', 'seen', 'fleetloop approve e --reason=seen'], ['fleetloop approve e', '', 'fleetloop approve e'], [undefined, 'x', ''],
])('%j with the reason %j', (cmd, reason, want) => expect(withReason(cmd, reason)).toBe(want))
