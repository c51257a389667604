// A made-up fleet for the mock server: the same at every start, with ages that
// count from the start.
let seed = 20261127
export function random() {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  return seed / 2 ** 32
}
export const pick = (list) => list[Math.floor(random() * list.length)]
const uuid = (n) => `01a20c4d-2eaf-78c4-b0${String(n % 90 + 10)}-${(0x60ee97220000 + n * 7919).toString(16).padStart(12, '0')}`
const START = Date.now()
export const ago = (s) => new Date(START - s * 1000).toISOString()
export const later = (s) => new Date(START + s * 1000).toISOString()

const REGIONS = ['ap-south', 'ap-southeast', 'eu-central', 'eu-north', 'eu-west', 'me-central', 'sa-east', 'us-central', 'us-east', 'us-west']
const ENVS = ['production', 'production', 'staging', 'dev']
const TEAMS = ['payments', 'search', 'ml-training', 'web', 'data', 'edge']
const VERSIONS = ['1.33.4', '1.34.2', '1.34.3', '1.35.0']
const ADAPTERS = ['validation', 'dns', 'provisioning']

export const REASONS = [
  { source: 'sync', code: 'ERR_INFRA_QUOTA_EXCEEDED', message: 'Shoot creation failed: quota "CPUS" exceeded in project fleet-prod. Limit: 4800.0, requested: 96' },
  { source: 'adapter:dns', code: '', message: 'zone example.net: too many changes, retry later (HTTP 429)' },
  { source: 'sync', code: 'ERR_INFRA_UNAUTHENTICATED', message: 'Secret binding "fleet-eu" has expired credentials' },
  { source: 'adapter:provisioning', code: '', message: 'machine type g6.48xlarge is not available in zone a' },
]

export const resources = { clusters: [], nodepools: [] }
export const syncs = new Map()
export const statuses = new Map()
export const revisions = new Map()

function conditions(phase, generation, observed, since, reason) {
  const ready = phase === 'Ready'
  const base = { observed_generation: observed, created_time: ago(800_000), last_updated_time: ago(20 + random() * 200), last_transition_time: since }
  const one = (type, ok, r, message) => ({ type, status: ok ? 'True' : 'False', reason: r, message, ...base })
  return [
    one('Reconciled', ready, ready ? 'AllAdaptersReconciled' : 'AdaptersPending', ready ? `generation ${generation} is reconciled` : `waits for ${reason?.source.startsWith('adapter:') ? reason.source.slice(8) : 'provisioning'}`),
    one('LastKnownReconciled', true, 'Reconciled', `generation ${Math.max(1, observed)} was reconciled`),
    one('DnsSuccessful', !(reason?.source === 'adapter:dns'), reason?.source === 'adapter:dns' ? 'RateLimited' : 'RecordsInSync', reason?.source === 'adapter:dns' ? reason.message : ''),
  ]
}

function reports(generation, observed, reason, since) {
  return ADAPTERS.map((adapter) => {
    const blamed = reason?.source === `adapter:${adapter}`
    const at = blamed ? observed : generation
    return {
      adapter, observed_generation: Math.max(1, at), created_time: ago(700_000), last_report_time: ago(blamed ? 700 + random() * 900 : 8 + random() * 100),
      conditions: ['Available', 'Applied', 'Health'].map((type) => ({
        type, status: blamed && type === 'Available' ? 'False' : 'True', reason: blamed && type === 'Available' ? 'Waiting' : '', message: blamed && type === 'Available' ? reason.message : '', last_transition_time: blamed ? since : ago(500_000),
      })),
    }
  })
}

let number = 0
function add(kind, name, labels, phase, sinceSeconds, spec, owner, reason) {
  const id = uuid(number++)
  const generation = 2 + Math.floor(random() * 4)
  const observed = phase === 'Ready' ? generation : phase === 'Pending' ? 0 : generation - (random() < 0.7 ? 1 : 0)
  const since = ago(sinceSeconds)
  const resource = {
    id, kind: kind === 'clusters' ? 'Cluster' : 'NodePool', name, href: `/api/hyperfleet/v1/${kind}/${id}`, labels, metadata: { name, labels }, spec, generation,
    ...(owner ? { ownerResource: { id: owner.id, kind: 'Cluster', href: owner.href } } : {}),
    created_time: ago(86_400 * (3 + random() * 300)), updated_time: ago(sinceSeconds + random() * 4000), created_by: pick(['alice@example.com', 'carol@example.com', 'terraform']), updated_by: pick(['alice@example.com', 'dave@example.com', 'terraform']),
    ...(phase === 'Deleting' ? { deleted_time: since, deleted_by: 'carol@example.com' } : {}),
    status: {
      phase, observed_generation: observed, last_updated_time: ago(60 + random() * 600), last_transition_time: since, conditions: conditions(phase, generation, observed, since, reason),
      ...(kind === 'clusters' ? { shoot_status: phase === 'Ready' ? 'ready' : reason?.source === 'sync' ? 'error' : phase === 'Deleting' ? 'deleting' : phase === 'Pending' ? 'pending' : 'progressing' } : {}),
      ...(reason?.source === 'sync' ? { sync_error: reason.message } : {}),
    },
  }
  resources[kind].push(resource)
  statuses.set(id, phase === 'Pending' ? [] : reports(generation, observed, reason, since))
  revisions.set(id, Array.from({ length: generation }, (_, i) => {
    const g = generation - i
    return {
      generation: g, created_time: ago(sinceSeconds + 90_000 * i + 30), actor: i === 0 ? resource.updated_by : pick(['alice@example.com', 'terraform', 'dave@example.com']), labels,
      spec: { ...spec, kubernetes: { ...spec.kubernetes, version: VERSIONS[Math.max(0, VERSIONS.indexOf(spec.kubernetes?.version) - i)] ?? spec.kubernetes?.version }, ...(spec.replicas ? { replicas: Math.max(1, spec.replicas - i * 2) } : {}) },
    }
  }))
  if (kind === 'clusters') {
    const failing = reason?.source === 'sync'
    const attempts = failing ? 3 + Math.floor(random() * 18) : 0
    const state = phase === 'Ready' || !failing && phase !== 'Pending' ? 'synced' : failing ? (attempts >= 8 ? 'stuck' : 'backing_off') : 'pending'
    syncs.set(id, {
      cluster_id: id, name, state, synced: state === 'synced' ? ago(sinceSeconds) : null, deleting: phase === 'Deleting', sync_attempts: attempts, generation: generation + 2, synced_generation: state === 'synced' ? generation + 2 : generation + 1,
      ...(state === 'synced' ? {} : { unsynced_since: since, next_attempt: later(20 + random() * 280) }),
      ...(failing ? { sync_last_attempt: ago(20 + random() * 200), sync_error: reason.message, error_class: reason.code } : {}),
      shoot_name: name, shoot_status: resource.status.shoot_status, shoot_status_updated: ago(30 + random() * 90), shoot_status_message: failing ? 'Flow "Shoot cluster creation" encountered task errors.' : '',
    })
  }
  resource.reason = reason
  return resource
}

for (const region of REGIONS) {
  const count = 18 + Math.floor(random() * 34)
  for (let i = 1; i <= count; i++) {
    const name = `${region}-${String(i).padStart(2, '0')}`
    const roll = random()
    const troubled = region === 'eu-west' ? 0.55 : region === 'ap-south' ? 0.1 : 0.03
    let reason
    let phase = 'Ready'
    let since = 3600 * (1 + random() * 400)
    if (roll < troubled) {
      reason = region === 'eu-west' ? (random() < 0.8 ? REASONS[0] : REASONS[1]) : pick(REASONS)
      phase = reason.source === 'sync' ? 'Failed' : 'Provisioning'
      since = 400 + random() * 7000
    } else if (roll < troubled + 0.02) [phase, since] = ['Provisioning', 20 + random() * 200]
    else if (roll < troubled + 0.028) [phase, since] = ['Pending', 5 + random() * 60]
    else if (roll < troubled + 0.034) [phase, since] = ['Deleting', 60 + random() * 500]
    if (name === 'eu-west-03') [phase, since, reason] = ['Failed', 2 * 3600 + 700, REASONS[0]]
    const cluster = add('clusters', name, { region, env: pick(ENVS), team: pick(TEAMS), tier: pick(['gold', 'silver']) }, phase, since,
      { kubernetes: { version: pick(VERSIONS) }, region, network: { pods: '100.64.0.0/12', services: '100.96.0.0/16' }, maintenance: { window: '02:00-04:00', autoUpdate: random() < 0.5 }, workers: 3 + Math.floor(random() * 40) }, undefined, reason)
    for (const pool of ['system', 'workers', 'gpu'].slice(0, 2 + (random() < 0.3 ? 1 : 0))) {
      add('nodepools', pool, { ...cluster.labels, pool }, phase === 'Ready' && random() < 0.985 ? 'Ready' : phase === 'Ready' ? 'Provisioning' : phase === 'Failed' ? 'Provisioning' : phase, phase === 'Ready' ? 30 + random() * 900 : since * 0.9,
        { kubernetes: { version: cluster.spec.kubernetes.version }, machineType: pool === 'gpu' ? 'g6.12xlarge' : 'm7.2xlarge', replicas: 2 + Math.floor(random() * 30), zones: ['a', 'b', 'c'] }, cluster, phase === 'Ready' ? undefined : REASONS[3])
    }
  }
}
const paused = resources.clusters.filter((c) => c.labels.region === 'us-east').slice(2, 4)
for (const c of paused) Object.assign(syncs.get(c.id), { state: 'paused', paused_at: ago(5400), pause: { by: 'carol@example.com', reason: 'network migration, CHG-2231', since: ago(5400), until: later(9000) } })

const find = (name) => resources.clusters.find((c) => c.name === name)

export const executions = [
  execution('scale-web-x7kq2', {
    action: 'scale_deployment', parameters: { namespace: 'shop', deployment: 'web', replicas: 9 }, reason: 'checkout latency is above 2 s since 02:40, INC-4711', requested_by: 'alice@example.com', environment: 'production',
    target: { api_version: 'apps/v1', kind: 'Deployment', namespace: 'shop', name: 'web' }, phase: 'waiting_approval', created: ago(340), expires: later(3260),
    diff: ' apiVersion: apps/v1\n kind: Deployment\n metadata:\n   name: web\n   namespace: shop\n spec:\n-  replicas: 3\n+  replicas: 9\n   selector:\n     matchLabels: {app: web}',
    steps: [{ verb: 'patch', resource: 'deployments/scale', namespace: 'shop', name: 'web', description: 'scale Deployment shop/web from 3 to 9 replicas' }],
    impact: { resources_affected: 1, replicas_changed: '3 → 9', description: 'Scale Deployment shop/web from 3 to 9 replicas' }, rollback: { available: true, action: 'scale_deployment' },
    warnings: ['namespace shop has a quota of 10 pods; 9 replicas leave room for 1'],
  }),
  execution('drain-gpu-17', {
    action: 'drain_node', parameters: { node: 'gpu-17', grace_period: '120s' }, reason: 'GPU 3 throws XID 79 after the reboot', requested_by: 'dave@example.com', environment: 'production',
    target: { api_version: 'v1', kind: 'Node', name: 'gpu-17' }, phase: 'waiting_approval', created: ago(1500), expires: later(620),
    diff: ' apiVersion: v1\n kind: Node\n metadata:\n   name: gpu-17\n spec:\n+  unschedulable: true', steps: [
      { verb: 'patch', resource: 'nodes', name: 'gpu-17', description: 'cordon node gpu-17' }, { verb: 'create', resource: 'pods/eviction', description: 'evict 14 pods in 6 namespaces' }],
    impact: { resources_affected: 15, description: 'Cordon node gpu-17 and evict 14 pods' }, rollback: { available: true, action: 'uncordon_node' },
  }),
  execution('restart-search-9fj2', {
    action: 'restart_deployment', parameters: { namespace: 'search', deployment: 'indexer' }, reason: 'memory leak, INC-4702', requested_by: 'alice@example.com', environment: 'staging',
    target: { api_version: 'apps/v1', kind: 'Deployment', namespace: 'search', name: 'indexer' }, phase: 'executing', created: ago(95), job: 'restart-search-9fj2-run',
    diff: ' spec:\n   template:\n     metadata:\n       annotations:\n+        kubectl.kubernetes.io/restartedAt: "2026-11-27T21:58:02Z"', steps: [{ verb: 'patch', resource: 'deployments', namespace: 'search', name: 'indexer', description: 'restart the pods of Deployment search/indexer' }],
    impact: { resources_affected: 1, description: 'Restart 4 pods of Deployment search/indexer, one after the other' }, rollback: { available: false, reason: 'a restart has nothing to restore' },
  }),
  execution('patch-config-a81', {
    action: 'patch_configmap', parameters: { namespace: 'web', configmap: 'limits', 'data.burst': '200' }, reason: 'raise the burst for the sale', requested_by: 'carol@example.com', environment: 'production',
    target: { api_version: 'v1', kind: 'ConfigMap', namespace: 'web', name: 'limits' }, phase: 'rollback_ready', created: ago(900), expires: later(840), outcome: 'Succeeded', job: 'patch-config-a81-run', message: 'ConfigMap web/limits changed (data.burst: 100 → 200)',
    diff: ' data:\n-  burst: "100"\n+  burst: "200"', steps: [{ verb: 'patch', resource: 'configmaps', namespace: 'web', name: 'limits', description: 'set data.burst of ConfigMap web/limits to 200' }],
    impact: { resources_affected: 1, description: 'Set data.burst of ConfigMap web/limits to 200' }, rollback: { available: true, action: 'patch_configmap' }, approved: true,
  }),
  ...['scale-api-71c', 'restart-edge-b2', 'cordon-gpu-09', 'scale-web-k11', 'patch-flags-22x', 'restart-queue-4'].map((name, i) => execution(name, {
    action: ['scale_deployment', 'restart_deployment', 'cordon_node', 'scale_deployment', 'patch_configmap', 'restart_statefulset'][i], reason: ['more traffic', 'stuck leader', 'ECC errors', 'load test', 'turn off a feature', 'INC-4650'][i], requested_by: ['dave@example.com', 'carol@example.com', 'alice@example.com'][i % 3], environment: i % 2 ? 'staging' : 'production',
    target: { kind: 'Deployment', namespace: ['api', 'edge', '', 'shop', 'web', 'queue'][i], name: ['api', 'edge-proxy', 'gpu-09', 'web', 'flags', 'queue'][i] }, phase: i === 1 || i === 3 ? 'failed' : 'completed', created: ago(7200 * (i + 1)), outcome: i === 1 || i === 3 ? 'Failed' : 'Succeeded',
    reason_detail: i === 1 ? 'approval_rejected' : i === 3 ? 'policy_denied' : undefined, message: i === 1 ? 'bob@example.com rejected the plan: not during the sale' : i === 3 ? 'policy replica-ceiling: at most 20 replicas in staging' : 'done', job: `${name}-run`,
    impact: { resources_affected: 1, description: ['Scale Deployment api/api from 6 to 8 replicas', 'Restart Deployment edge/edge-proxy', 'Cordon node gpu-09', 'Scale Deployment shop/web from 4 to 40 replicas', 'Set data.beta of ConfigMap web/flags to off', 'Restart StatefulSet queue/queue'][i] }, undelivered: i === 0 ? 2 : 0,
  })),
]

function execution(name, o) {
  const waiting = o.phase === 'waiting_approval'
  const hash = [...name].reduce((h, c) => Math.imul(h ^ c.charCodeAt(0), 16777619) >>> 0, 2166136261).toString(16).padStart(8, '0').repeat(8)
  const order = ['validating', 'validated', 'waiting_approval', 'executing', 'rollback_ready', 'completed']
  const reached = o.phase === 'failed' ? ['validating', 'failed'] : order.slice(0, order.indexOf(o.phase) + 1)
  const start = Date.parse(o.created)
  const target = [o.target.kind, o.target.namespace, o.target.name].filter(Boolean).join('/')
  const denied = o.reason_detail === 'policy_denied'
  const rollback = o.rollback && { available: o.rollback.available, rollbackAction: o.rollback.action, reason: o.rollback.reason }
  const decision = { approver: 'bob@example.com', decision: o.reason_detail === 'approval_rejected' ? 'Reject' : 'Approve', reason: 'seen in the incident channel', planHash: hash }
  const decisions = waiting || denied ? [] : [decision]
  return {
    host: 'prod-host', namespace: 'kubernaut-executor', name, uid: name, created: o.created, action: o.action, target, environment: o.environment, phase: o.phase, phase_since: new Date(start + (reached.length - 1) * 1700).toISOString(),
    reason: o.reason_detail, message: o.message ?? (waiting ? 'waits for 1 approval' : ''), outcome: o.outcome, requested_by: o.requested_by, request_reason: o.reason, expires: o.expires, plan_hash: hash, impact: o.impact.description,
    undelivered_change_events: o.undelivered,
    approval: { state: waiting ? 'Pending' : 'Approved', required: true, requiredCount: 1, requesterCannotApprove: true, groups: ['sre-approvers'], countedDecisions: decisions },
    plan: { hash, diff: o.diff ?? '', steps: o.steps ?? [], impact: { resourcesAffected: o.impact.resources_affected, replicasChanged: o.impact.replicas_changed, description: o.impact.description }, rollback },
    policy: { policyName: 'production-changes', allowed: !denied, requiredApproval: true, requiredDryRun: true, violations: denied ? ['replica-ceiling: at most 20 replicas in staging'] : [], warnings: o.warnings ?? [], mode: 'enforce', evaluatedAt: o.created },
    rollback: o.phase === 'rollback_ready' ? rollback : undefined,
    command: { approve: `fleetloop approve ${name} --namespace=kubernaut-executor --plan=${hash.slice(0, 12)}`, reject: `fleetloop reject ${name} --namespace=kubernaut-executor --reason=TEXT`, cancel: `fleetloop exec cancel ${name} --namespace=kubernaut-executor`, rollback: `fleetloop rollback ${name} --namespace=kubernaut-executor --reason=TEXT` },
    object: {
      apiVersion: 'kubernetesexecution.kubernaut.io/v1alpha1', kind: 'KubernetesExecution', metadata: { name, namespace: 'kubernaut-executor' },
      spec: { action: o.action, parameters: o.parameters, reason: o.reason, requestedBy: o.requested_by, approvals: decisions },
      status: {
        phase: o.phase, jobName: o.job, pendingChangeEvents: o.undelivered ? [{ action: 'execution-started', at: o.created, sinks: ['on-call'] }, { action: 'execution-succeeded', at: o.created, sinks: ['on-call', 'timeline'] }] : undefined, phaseTransitions: reached.map((phase, i) => ({ phase, at: new Date(start + i * 1700).toISOString() })),
        validationResults: {
          parameterValidation: true, rbacValidation: true, resourceExists: true, validationTime: o.created, dryRunResults: { performed: true, success: true, warnings: [] },
          preConditionResults: waiting ? [{ conditionType: 'quota-headroom', passed: true, evaluated: true, required: true }] : [], postConditionResults: waiting ? [{ conditionType: 'all-replicas-available', passed: false, evaluated: false, required: true }] : [],
        },
      },
    },
  }
}

export const nodes = [
  node('gpu-04', 'draining', 2840, 'Draining: 3 pods are left, 2 of them cannot be evicted', 'XID-79', { remedy: 'reboot #1 running', pods_left: 3, deadline: later(760), blocking: [
    { pod: 'trainer-7', namespace: 'ml', budget: 'ml/trainer', message: 'needs 8 healthy pods and has 8', since: ago(2100) }, { pod: 'etcd-backup-0', namespace: 'infra', budget: 'bare-pod', message: 'no controller would create it again', since: ago(2800) }] }),
  node('gpu-11', 'repairing', 640, 'Rebooting, attempt 1 of 2', 'XID-48', { remedy: 'reboot #1 running' }),
  node('gpu-22', 'cordoned', 210, 'Cordoned: no rule requires a drain', 'ECC-DBE', {}),
  node('cpu-103', 'detected', 95, 'The budget prevents the cordon: 4 of 4 nodes are out of service', 'KernelDeadlock', {}),
  node('gpu-30', 'returning', 120, 'No fault is left; the node returns when it has been healthy for 10 min', 'XID-79', { remedy: 'reboot #1 running' }),
  node('gpu-02', 'held', 86_000, 'Held by carol@example.com: waits for a new fan', 'THERMAL', {}),
  ...['gpu-07', 'gpu-15', 'cpu-044'].map((name, i) => node(name, 'back', 4000 + i * 9000, 'Back in service after a reboot', '', { remedy: 'reboot #1 running' })),
]
function node(name, stage, since, reason, code, { remedy, blocking = [], deadline, pods_left }) {
  return {
    host: 'prod-host', name, stage, since: ago(since), reason, fault: { phase: stage, code, session: `s-${name}-20261127`, faults: 1, remedy }, undelivered_change_events: name === 'gpu-11' ? 1 : 0, blocking,
    command: { hold: `kubectl annotate node ${name} fleetloop.io/hold=REASON`, release: `fleetloop faults release ${name} --reason=TEXT` },
    object: {
      spec: { faults: stage === 'back' ? [] : [{ source: 'syslog-health-monitor', check: 'xid-check', entity: 'GPU/3', errorCodes: code ? [code] : [], fatal: true, message: 'GPU has fallen off the bus', detectedAt: ago(since + 40) }] },
      status: { drain: deadline && { state: 'Running', deadline, remaining: pods_left }, history: [{ sequence: 1, at: ago(since + 30), action: 'cordon', outcome: 'succeeded', message: 'rule gpu-fatal' }, { sequence: 2, at: ago(since), action: stage, outcome: 'succeeded' }], sinkDeliveries: name === 'gpu-11' ? { 'on-call': { processedSequence: 1, lastDeliveredAt: ago(700), lastError: 'timeout', lastFailedAt: ago(20), rejected: [1] }, timeline: { processedSequence: 2, lastDeliveredAt: ago(since) } } : {} },
    },
  }
}

export const sentinels = {
  items: ['ap', 'eu', 'us'].map((area, i) => ({
    host: 'prod-host', namespace: 'fleetloop', name: `clusters-${area}`, ready: i !== 1, message: i === 1 ? 'share 2 of 4 has no holder since 6 min: replica sentinel-eu-1 does not answer' : 'watches', resource_type: 'clusters', selector: `region in (${REGIONS.filter((r) => r.startsWith(area)).join(',')})`,
    resources_watched: resources.clusters.filter((c) => c.labels.region.startsWith(area)).length, events_published: 18_422 + i * 3100, last_poll: ago(2 + i),
    shards: Array.from({ length: i === 0 ? 2 : 4 }, (_, k) => ({ index: k, holder: i === 1 && k === 2 ? '' : `sentinel-${area}-${k % 2}`, resources_watched: 20 + k * 3, lag_seconds: i === 1 && k === 2 ? 364 : i === 2 && k === 3 ? 92 : 1 + k })),
  })).concat([{ host: 'prod-host', namespace: 'fleetloop', name: 'nodepools-all', ready: true, message: 'watches', resource_type: 'nodepools', selector: '', resources_watched: resources.nodepools.length, events_published: 55_100, last_poll: ago(1), shards: [] }]),
}

export const changes = []
const EVENTS = [
  ['fleetloop/fleet-api', 'cluster-changed', (c) => ({ subject: `clusters/${c.name}`, summary: `${c.name}: spec.kubernetes.version 1.34.2 → 1.35.0`, details: { who: c.updated_by }, changes: [{ field: 'spec.kubernetes.version', before: '1.34.2', after: '1.35.0' }], actor: c.updated_by })],
  ['fleetloop/cluster-worker', 'shoot-updated', (c) => ({ subject: `shoots/${c.name}`, summary: `Shoot ${c.name} updated` })],
  ['fleetloop/cluster-worker', 'shoot-ready', (c) => ({ subject: `shoots/${c.name}`, summary: `Shoot ${c.name} is ready` })],
  ['nvsentinel/fault-quarantine', 'cordon', () => ({ node: pick(nodes).name, summary: 'XID-79 on GPU/3: cordoned by rule gpu-fatal', healthEvent: { checkName: 'xid-check', errorCode: 'XID-79', isFatal: true, message: 'GPU has fallen off the bus' } })],
  ['nvsentinel/node-drainer', 'drain-failed', () => ({ node: 'gpu-04', summary: '2 pods were left at the deadline', outcome: 'failed', reason: 'disruption budget ml/trainer' })],
  ['fleetloop/execution-controller', 'execution-approved', () => ({ subject: 'executions/patch-config-a81', summary: 'bob@example.com approved the plan', actor: 'bob@example.com' })],
]
let event = 0
export function addChange(seconds, cluster, kind, more = {}) {
  const [source, action, make] = EVENTS[kind]
  const at = new Date(Date.now() - seconds * 1000).toISOString()
  const change = { id: `ev-${String(++event).padStart(5, '0')}`, action, source, actor: source, timestamp: at, recordedAt: at, cluster: cluster.name, node: '', dryRun: false, outcome: 'succeeded', ...make(cluster), ...more }
  changes.push(change)
  return change
}
for (let i = 0; i < 240; i++) addChange(random() ** 2 * 6 * 86_400, random() < 0.35 ? pick(resources.clusters.filter((c) => c.labels.region === 'eu-west')) : pick(resources.clusters), Math.floor(random() * 6), random() < 0.05 ? { dryRun: true } : {})
const west = find('eu-west-03')
addChange(560, west, 0, { summary: 'eu-west-03: spec.workers 24 → 120', details: { who: 'dave@example.com' }, actor: 'dave@example.com', changes: [{ field: 'spec.workers', before: 24, after: 120 }, { field: 'labels.tier', before: 'silver', after: 'gold' }] })
addChange(540, west, 1, { action: 'shoot-updated' })
addChange(505, west, 1, { action: 'shoot-failed', outcome: 'failed', summary: REASONS[0].message, reason: 'ERR_INFRA_QUOTA_EXCEEDED' })
addChange(320, west, 1, { action: 'shoot-failed', outcome: 'failed', summary: REASONS[0].message, reason: 'ERR_INFRA_QUOTA_EXCEEDED' })
addChange(130, west, 5, { subject: 'executions/scale-web-x7kq2', action: 'execution-started', summary: 'dry run of scale_deployment on shop/web', dryRun: true, actor: 'alice@example.com' })
for (const c of resources.clusters.filter((r) => r.reason).slice(0, 26)) addChange(60 + random() * 3300, c, 1, { action: 'shoot-failed', outcome: 'failed', summary: c.reason.message, reason: c.reason.code })
changes.sort((a, b) => b.timestamp.localeCompare(a.timestamp))
