// A mock of the console server for development and for the checks of the page:
// it serves the contract with a made-up fleet, and no part of it is shipped.
// Usage: node mock/server.mjs [--port 8090] [--dist DIR] [--base /] [--quiet]
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join, normalize } from 'node:path'
import { parseArgs } from 'node:util'
import { addChange, ago, changes, executions, nodes, pick, REASONS, resources, revisions, sentinels, statuses, syncs } from './fleet.mjs'

const { values: flags } = parseArgs({ options: { port: { type: 'string', default: '8090' }, dist: { type: 'string' }, base: { type: 'string', default: '/' }, mode: { type: 'string', default: 'oidc' }, quiet: { type: 'boolean' } } })
const DIST = flags.dist ?? new URL('../../internal/console/dist', import.meta.url).pathname
const BASE = flags.base

let user = flags.mode === 'none' ? undefined : null
let stopped = { stopped: false }
const streams = new Set()
let cursor = 0
const CSRF = 'mock-csrf'
const PEOPLE = { alice: 'requests', bob: 'approves', admin: 'administrator' }
const now = () => new Date().toISOString()

const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' }
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

function problem(res, status, title, detail = '', code = '') {
  res.writeHead(status, { 'Content-Type': 'application/problem+json' })
  res.end(JSON.stringify({ type: 'about:blank', title, status, detail, code }))
}
function json(res, body, headers = {}) {
  res.writeHead(200, { 'Content-Type': 'application/json', 'Cache-Control': 'no-store', ...headers })
  res.end(JSON.stringify(body))
}
async function bodyOf(req) {
  let text = ''
  for await (const piece of req) text += piece
  return text ? JSON.parse(text) : {}
}
function emit(topic, change) {
  const text = `id: ${++cursor}\nevent: ${topic}\ndata: ${JSON.stringify(change)}\n\n`
  for (const s of streams) if (s.topics.has(topic)) s.res.write(text)
}

const etag = (r) => `"${r.id}-${r.generation}-${r.updated_time}"`
const isAllowed = (role) => user === undefined || PEOPLE[user] === role || user === 'admin'

function matchLabels(selector, labels = {}) {
  return selector.split(/,(?![^(]*\))/).every((term) => {
    const t = term.trim()
    let m = /^([\w./-]+)\s+(in|notin)\s*\(([^)]*)\)$/.exec(t)
    if (m) return (m[2] === 'in') === m[3].split(',').map((v) => v.trim()).includes(labels[m[1]])
    m = /^([\w./-]+)\s*(==?|!=)\s*(.*)$/.exec(t)
    if (m) return (m[2] !== '!=') === (labels[m[1]] === m[3])
    return t.startsWith('!') ? !(t.slice(1) in labels) : t === '' || t in labels
  })
}
function matchSearch(search, r) {
  return search.split(' and ').every((term) => {
    let m = /^name like '%(.*)%'$/.exec(term)
    if (m) return r.name.includes(m[1])
    m = /^id in \((.*)\)$/.exec(term)
    if (m) return m[1].split(',').includes(`'${r.id}'`)
    m = /^status\.phase (?:= |in \()(.*?)\)?$/.exec(term)
    return m ? m[1].split(',').some((p) => p === `'${r.status.phase}'`) : true
  })
}
const valueOf = (r, path) => path.split('.').reduce((v, k) => v?.[k], r)

function list(kind, q, parent) {
  let rows = resources[kind].filter((r) => (!parent || r.ownerResource?.id === parent) && matchLabels(q.get('labels') ?? '', r.labels) && matchSearch(q.get('search') ?? '', r))
  const [column, direction] = (q.get('order') ?? 'created_time desc').split(' ')
  rows = rows.toSorted((a, b) => (valueOf(a, column) < valueOf(b, column) ? -1 : 1) * (direction === 'desc' ? -1 : 1))
  if (q.has('limit')) {
    const at = Number(q.get('continue') ?? 0)
    const end = at + Number(q.get('limit'))
    return { items: rows.slice(at, end), size: rows.length, ...(end < rows.length ? { continue: String(end) } : {}) }
  }
  const size = Number(q.get('size') ?? 20)
  const page = Number(q.get('page') ?? 1)
  return { items: rows.slice((page - 1) * size, page * size), page, size, total: rows.length }
}

const count = (rows) => {
  const phases = {}
  for (const r of rows) phases[r.status.phase] = (phases[r.status.phase] ?? 0) + 1
  return { total: rows.length, phases }
}
const oldest = (rows) => rows.filter((r) => r.status.phase !== 'Ready').sort((a, b) => a.status.last_transition_time.localeCompare(b.status.last_transition_time))[0]
function summary() {
  const kinds = {}
  for (const kind of ['clusters', 'nodepools']) {
    const o = oldest(resources[kind])
    kinds[kind] = { ...count(resources[kind]), ...(o ? { oldest_not_ready: { id: o.id, name: o.name, phase: o.status.phase, since: o.status.last_transition_time } } : {}) }
  }
  const states = {}
  for (const s of syncs.values()) states[s.state] = (states[s.state] ?? 0) + 1
  const unsynced = [...syncs.values()].filter((s) => s.unsynced_since && s.state !== 'paused').sort((a, b) => a.unsynced_since.localeCompare(b.unsynced_since))[0]
  const labels = {}
  for (const key of ['region', 'env', 'team']) {
    labels[key] = {}
    for (const value of new Set(resources.clusters.map((r) => r.labels[key]))) labels[key][value] = count(resources.clusters.filter((r) => r.labels[key] === value))
  }
  const reasons = REASONS.map((r) => ({ r, hit: resources.clusters.filter((c) => c.reason === r) })).filter((x) => x.hit.length)
    .map(({ r, hit }) => ({ reason: r.message.replace(/"[^"]*"/g, '<value>').replace(/\d[\d.]*/g, '<n>'), source: r.source, count: hit.length, since: hit.map((c) => c.status.last_transition_time).sort()[0], example: { kind: 'clusters', id: hit[0].id, name: hit[0].name } })).sort((a, b) => b.count - a.count)
  return { as_of: now(), kinds, sync: { states, oldest_unsynced: unsynced && { id: unsynced.cluster_id, name: unsynced.name, since: unsynced.unsynced_since } }, deliveries: { failing: 1, failing_since: ago(3600), given_up: 1 }, top_reasons: reasons, labels }
}

function stuck(q) {
  const items = ['clusters', 'nodepools'].filter((k) => !q.get('kind') || q.get('kind') === k).flatMap((kind) => resources[kind].filter((r) => !['Ready', 'Deleting'].includes(r.status.phase) && Date.now() - Date.parse(r.status.last_transition_time) > 300_000).map((r) => {
    const sync = syncs.get(r.id)
    const parent = r.ownerResource && resources.clusters.find((c) => c.id === r.ownerResource.id)
    const cause = sync?.state === 'paused' ? { type: 'paused', message: sync.pause.reason } : r.reason?.source === 'sync' ? { type: 'gardener', code: r.reason.code, message: r.reason.message }
      : r.reason ? { type: 'adapter', adapter: r.reason.source.slice(8), message: r.reason.message } : { type: 'none_reported', message: 'No adapter has reported on generation ' + r.generation }
    return { kind, id: r.id, name: r.name, ...(parent ? { cluster_id: parent.id, cluster_name: parent.name } : {}), phase: r.status.phase, since: r.status.last_transition_time, generation: r.generation, observed_generation: r.status.observed_generation, cause, ...(sync?.sync_attempts ? { attempts: sync.sync_attempts, next_attempt: sync.next_attempt } : {}) }
  })).filter((s) => !q.get('cause') || s.cause.type === q.get('cause')).sort((a, b) => a.since.localeCompare(b.since))
  return { items: items.slice(0, Number(q.get('limit') ?? 100)) }
}

const moment = (text, fallback) => {
  if (!text) return fallback
  const m = /^(\d+)([smhd])$/.exec(text)
  return m ? Date.now() - Number(m[1]) * { s: 1e3, m: 6e4, h: 36e5, d: 864e5 }[m[2]] : Date.parse(text)
}
function filterChanges(q) {
  const since = moment(q.get('since'), 0)
  const until = moment(q.get('until'), Infinity)
  return changes.filter((c) => {
    const at = Date.parse(c.timestamp)
    return at >= since && at < until && ['cluster', 'node', 'subject', 'outcome'].every((k) => !q.get(k) || q.get(k).split(',').includes(c[k])) && (!q.get('actor') || c.actor.includes(q.get('actor')))
      && (!q.get('dry_run') || String(c.dryRun) === q.get('dry_run')) && (!q.get('text') || c.summary.toLowerCase().includes(q.get('text').toLowerCase()))
  })
}
function buckets(q) {
  const since = moment(q.get('since'), Date.now() - 36e5)
  const until = moment(q.get('until'), Date.now())
  const n = Number(q.get('buckets') ?? 60)
  const lanes = new Map()
  for (const c of filterChanges(q)) {
    const name = c[q.get('by') ?? 'cluster'] || ''
    if (!lanes.has(name)) lanes.set(name, { name, counts: Array(n).fill(0), failed: Array(n).fill(0) })
    const at = Math.min(n - 1, Math.floor(((Date.parse(c.timestamp) - since) / (until - since)) * n))
    lanes.get(name).counts[at]++
    if (c.outcome === 'failed') lanes.get(name).failed[at]++
  }
  const sum = (l) => l.counts.reduce((a, b) => a + b, 0)
  const sorted = [...lanes.values()].sort((a, b) => sum(b) - sum(a))
  return { since: new Date(since).toISOString(), until: new Date(until).toISOString(), step_seconds: (until - since) / n / 1000, lanes: sorted.slice(0, 12), more_lanes: Math.max(0, sorted.length - 12) }
}

function can(e) {
  const approver = user === 'bob' || user === 'admin'
  const waiting = e.phase === 'waiting_approval'
  const no = (reason) => ({ allowed: false, reason })
  return {
    approve: !waiting ? no('it does not wait for approval') : approver ? { allowed: true } : no(user === 'alice' ? 'you requested it, and the requester is excluded' : 'you lack the verb approve'),
    reject: !waiting ? no('it does not wait for approval') : approver ? { allowed: true } : no('you lack the verb approve'),
    cancel: waiting || e.phase === 'executing' ? { allowed: true } : no('it has ended'), rollback: e.phase === 'rollback_ready' ? { allowed: true } : no('it cannot be rolled back now'),
  }
}
const sessionOf = () => ({
  signed_in: user !== null, mode: flags.mode, csrf: CSRF, version: 'v0.9.0-mock', ...(user ? { user: { name: user, roles: [user === 'admin' ? 'operator' : 'viewer'] } } : {}),
  hosts: [{ name: 'prod-host', writes: true, audit: true }], demo_users: Object.entries(PEOPLE).map(([name, role]) => ({ name, role })),
})
const nodeCan = () => ({ hold: user === 'admin' || user === 'bob' ? { allowed: true } : { allowed: false, reason: 'you may not patch nodefaults' }, release: user === 'admin' || user === 'bob' ? { allowed: true } : { allowed: false, reason: 'you may not patch nodefaults' } })

async function serve(req, res) {
  const url = new URL(req.url, 'http://mock')
  if (!url.pathname.startsWith(BASE)) return problem(res, 404, 'Not Found')
  const path = url.pathname.slice(BASE.length)
  const q = url.searchParams
  const write = req.method !== 'GET' && req.method !== 'HEAD'
  if (write && req.headers['x-csrf-token'] !== CSRF) return problem(res, 403, 'Forbidden', 'The CSRF token is missing.')
  if (path === 'console/session') return json(res, sessionOf())
  if (path === 'console/demo' || path === 'console/token') {
    user = (await bodyOf(req)).user ?? 'alice'
    return res.writeHead(204).end()
  }
  if (path === 'console/logout') {
    user = null
    return res.writeHead(204).end()
  }
  if (!path.startsWith('api/') && !path.startsWith('console/')) return asset(path, res)
  if (user === null) return problem(res, 401, 'Sign in')
  if (path === 'console/stream') return stream(req, res, q)

  let m
  if (path === 'api/hyperfleet/v1/summary') return json(res, summary())
  if (path === 'api/hyperfleet/v1/stuck') return json(res, stuck(q))
  if (path === 'api/hyperfleet/v1/can-i') return json(res, q.get('verb') === 'get' || user !== 'alice' ? { allowed: true } : { allowed: q.get('verb') === 'patch', reason: 'the role viewer reads only' })
  if (path === 'api/hyperfleet/v1/clusters/sync') return json(res, { items: [...syncs.values()].filter((s) => !q.get('state') || q.get('state').split(',').includes(s.state)).slice(0, 200) })
  if ((m = /^api\/hyperfleet\/v1\/clusters\/sync\/(retry|pause|resume)$/.exec(path))) {
    const body = await bodyOf(req)
    for (const id of body.ids) setSync(id, m[1], body)
    return json(res, { changed: body.ids.length, failed: [] })
  }
  if ((m = /^api\/hyperfleet\/v1\/clusters\/([^/]+)\/nodepools$/.exec(path))) return json(res, list('nodepools', q, m[1]))
  if ((m = /^api\/hyperfleet\/v1\/(clusters|nodepools)$/.exec(path))) return json(res, list(m[1], q))
  if ((m = /^api\/hyperfleet\/v1\/(clusters|nodepools)\/([^/]+)(?:\/(.*))?$/.exec(path))) {
    const r = resources[m[1]].find((x) => x.id === m[2])
    if (!r) return problem(res, 404, 'Not Found', `no ${m[1]} with id ${m[2]}`, 'not_found')
    if (m[3] === 'statuses') return json(res, { items: statuses.get(r.id), page: 1, size: 3, total: 3 })
    if (m[3] === 'sync') return json(res, syncs.get(r.id))
    if (m[3] === 'revisions') return json(res, { items: revisions.get(r.id) })
    if (m[3]?.startsWith('sync/')) return json(res, setSync(r.id, m[3].slice(5), await bodyOf(req)))
    if (req.method === 'PATCH') {
      if (req.headers['if-match'] && req.headers['if-match'] !== etag(r)) return problem(res, 412, 'Precondition Failed', 'The resource has changed.', 'precondition_failed')
      const body = await bodyOf(req)
      if (body.labels) r.labels = body.labels
      if (body.spec) {
        r.spec = body.spec
        r.generation++
        r.status.phase = 'Provisioning'
        r.status.last_transition_time = now()
        revisions.get(r.id).unshift({ generation: r.generation, created_time: now(), actor: user ?? 'you', spec: r.spec, labels: r.labels })
      }
      r.updated_time = now()
      emit(m[1], { op: 'changed', item: r })
    }
    const { reason, ...shown } = r
    return json(res, shown, { ETag: etag(r) })
  }
  if (path === 'api/changes') return json(res, { items: filterChanges(q).slice(0, Number(q.get('limit') ?? 100)), cursor: 'c', ...(filterChanges(q).length > Number(q.get('limit') ?? 100) ? { continue: 'more' } : {}) })
  if (path === 'console/coverage') return json(res, coverage())
  if (path === 'api/changes/buckets') return json(res, buckets(q))
  if (path === 'api/changes/undelivered') return json(res, undelivered())
  if ((m = /^api\/changes\/([^/]+)\/(deliveries|resend)$/.exec(path))) return deliveries(m[1], m[2], req, res)
  if ((m = /^console\/hosts\/([^/]+)\/(.*)$/.exec(path))) return host(m[1], m[2], req, res, q)
  return problem(res, 404, 'Not Found', `nothing is at ${path}`)
}

const sent = new Map() // deliveries by event
const ofWorker = (c) => c?.source === 'fleetloop/cluster-worker'

function undelivered() {
  const change = changes.find(ofWorker)
  const items = deliveriesOf(change).filter((d) => d.error).map((delivery) => ({ event_id: change.id, action: change.action, cluster: change.cluster, time: change.timestamp, delivery }))
  return { items, more: false }
}

function deliveriesOf(change) {
  const { id } = change
  const at = (seconds) => new Date(Date.parse(change.timestamp) + seconds * 1000).toISOString()
  if (!sent.has(id)) {
    sent.set(id, [
      { sink: 'chat', type: 'slack', state: 'delivered', attempts: 2, first_attempt_at: at(1), last_attempt_at: at(6), finished_at: at(6) },
      { sink: 'default', type: 'nvsentinel', state: 'skipped', attempts: 0, finished_at: at(1) },
      { sink: 'lake', type: 'cloudevents', state: 'rejected', attempts: 1, first_attempt_at: at(1), last_attempt_at: at(1), finished_at: at(1), error: 'client_error', http_status: 400 },
      { sink: 'on-call', type: 'pagerduty', state: 'pending', attempts: 3, first_attempt_at: at(1), last_attempt_at: now(), next_attempt_at: new Date(Date.now() + 20_000).toISOString(), error: 'server_error', http_status: 503 },
    ])
  }
  return sent.get(id)
}

async function deliveries(id, verb, req, res) {
  const change = changes.find((c) => c.id === id)
  if (!ofWorker(change)) return json(res, { id, recorded: false, reason: "only the deliveries of the cluster-worker's change events are recorded here", items: [] })
  const items = deliveriesOf(change)
  if (verb === 'deliveries') return json(res, { id, recorded: true, items })
  const { sink } = await bodyOf(req)
  const queued = items.filter((d) => d.sink === sink && d.state !== 'pending')
  for (const d of queued) {
    Object.assign(d, { state: 'pending', finished_at: undefined, error: undefined, http_status: undefined })
    setTimeout(() => Object.assign(d, { state: 'delivered', attempts: d.attempts + 1, last_attempt_at: now(), finished_at: now() }), 8000)
  }
  return json(res, { queued: queued.map((d) => d.sink), items })
}

function setSync(id, verb, body) {
  const s = syncs.get(id)
  if (verb === 'pause') Object.assign(s, { state: 'paused', paused_at: now(), pause: { by: user ?? 'you', reason: body.reason, since: now(), until: body.until } })
  else {
    delete s.pause
    delete s.paused_at
    Object.assign(s, { state: s.sync_error ? 'backing_off' : 'pending', sync_attempts: 0, next_attempt: now() })
  }
  return s
}

function coverage() {
  const west = resources.clusters.find((r) => r.name === 'eu-west-03')
  return {
    collections: [{ collection: 'clusters', resources: 391, unwatched: 12, overlapping: 0, invalid: 0 }, { collection: 'nodepools', resources: 896, unwatched: 0, overlapping: 0, invalid: 0 }],
    gaps: [{ collection: 'clusters', labels: 'region=eu-west,tier=gold', resources: 12, example_id: west?.id ?? '', example_name: west?.name }], overlaps: [], as_of: now(),
  }
}

async function host(name, path, req, res, q) {
  let m
  if (path === 'executions') return json(res, { items: executions.map(({ plan, policy, object, command, ...short }) => short), as_of: now() })
  if (path === 'nodes') return json(res, { budgets: [{ pool: 'gpu', limit: 4, used: 3, blocked_since: nodes[3].since }], items: nodes.map((n) => ({ ...n, can: nodeCan() })), as_of: now() })
  if (path === 'decisions') {
    const r = resources[q.get('collection')]?.find((x) => x.id === q.get('id'))
    const at = r && Date.parse(r.status.last_updated_time)
    return json(res, { items: !r ? [] : sentinels.items.filter((s) => s.resource_type === q.get('collection')).map((s) => ({ host: name, namespace: s.namespace, name: s.name, endpoint: 'http://fleet-api:8000', state: 'waiting', message: 'the status is younger than 30m for a ready resource', next: new Date(at + 30 * 60e3).toISOString(), inputs: { generation: r.generation, observed_generation: r.status.observed_generation, phase: r.status.phase, ready: true, max_age_seconds: 1800 } })), as_of: now() })
  }
  if (path === 'sentinels') return json(res, { ...sentinels, as_of: now() })
  if (path === 'stop') {
    if (req.method === 'POST') stopped = { stopped: true, by: user, reason: (await bodyOf(req)).reason, since: now() }
    if (req.method === 'DELETE') stopped = { stopped: false }
    if (req.method !== 'GET') return res.writeHead(204).end()
    return json(res, { ...stopped, can: isAllowed('administrator') ? { allowed: true } : { allowed: false, reason: 'administrators only' }, command: { stop: 'fleetloop exec stop', resume: 'fleetloop exec end-stop' } })
  }
  if ((m = /^nodes\/([^/]+)\/(hold|release)$/.exec(path))) {
    const n = nodes.find((x) => x.name === m[1])
    n.stage = m[2] === 'hold' ? 'held' : 'back'
    n.since = now()
    emit('nodes', { op: 'changed', host: name, item: { ...n, can: nodeCan() } })
    return json(res, n)
  }
  if ((m = /^executions\/([^/]+)\/([^/]+)(?:\/(\w+))?$/.exec(path))) {
    const e = executions.find((x) => x.name === m[2])
    if (!e) return problem(res, 404, 'Not Found', `execution "${m[2]}" does not exist`)
    if (m[3] === 'log') return log(req, res)
    if (m[3] === 'audit') return json(res, { items: (e.object.status.phaseTransitions ?? []).map((p, i) => ({ position: i + 1, at: p.at, type: p.phase, actor: 'execution-controller' })).reverse(), as_of: now() })
    if (req.method === 'POST') {
      const body = await bodyOf(req)
      if (!can(e)[m[3]]?.allowed) return problem(res, 403, 'Forbidden', can(e)[m[3]]?.reason)
      if (m[3] === 'approve' && body.plan_hash !== e.plan_hash) return problem(res, 409, 'The plan has changed', 'Read the current plan and decide again.')
      const status = e.object.status
      if (m[3] === 'approve') {
        const decisions = [{ approver: `${user}@example.com`, decision: 'Approve', reason: body.reason, planHash: e.plan_hash }]
        e.approval = { ...e.approval, state: 'Approved', countedDecisions: decisions }
        e.object.spec.approvals = decisions
        e.phase = 'executing'
        status.jobName = `${e.name}-run`
      } else Object.assign(e, { phase: 'failed', outcome: 'Failed', message: `${user}@example.com: ${body.reason}` })
      e.phase_since = now()
      status.phaseTransitions.push({ phase: e.phase, at: now() })
      emit('executions', { op: 'changed', host: name, item: e })
    }
    return json(res, { ...e, can: can(e) })
  }
  return problem(res, 404, 'Not Found')
}

function log(req, res) {
  res.writeHead(200, { 'Content-Type': 'text/plain; charset=utf-8' })
  const lines = ['21:58:02 action-runner: verified plan hash', '21:58:02 patch deployments search/indexer', '21:58:03 waiting for 4 pods: 0 of 4 updated', '21:58:21 waiting for 4 pods: 1 of 4 updated', '21:58:44 waiting for 4 pods: 2 of 4 updated']
  let i = 0
  const timer = setInterval(() => (i < lines.length ? res.write(`${lines[i++]}\n`) : res.end()), 120)
  req.on('close', () => clearInterval(timer))
}

function stream(req, res, q) {
  res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' })
  const s = { res, topics: new Set((q.get('topics') ?? '').split(',')) }
  const mark = () => res.write(`id: ${cursor}\nevent: bookmark\ndata: ${JSON.stringify({ as_of: now() })}\n\n`)
  mark()
  const timer = setInterval(mark, 3000)
  streams.add(s)
  req.on('close', () => {
    clearInterval(timer)
    streams.delete(s)
  })
}

function asset(path, res) {
  let file = normalize(join(DIST, path))
  if (!file.startsWith(normalize(DIST)) || path === '' || !existsSync(file) || !statSync(file).isFile()) {
    if (path.startsWith('assets/')) return problem(res, 404, 'Not Found')
    res.writeHead(200, { 'Content-Type': TYPES['.html'], 'Content-Security-Policy': CSP, 'Cache-Control': 'no-cache' })
    return res.end(readFileSync(join(DIST, 'index.html'), 'utf8').replace('name="fleetloop-base" content="/"', `name="fleetloop-base" content="${BASE}"`).replaceAll('"./assets/', `"${BASE}assets/`))
  }
  res.writeHead(200, { 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream', 'Cache-Control': 'public, max-age=31536000, immutable' })
  createReadStream(file).pipe(res)
}

// The fleet moves: a cluster changes its phase, and somebody changes something.
if (!flags.quiet) {
  setInterval(() => {
    const c = pick(resources.clusters.filter((r) => !r.reason && r.status.phase !== 'Deleting'))
    c.status.phase = c.status.phase === 'Ready' ? 'Provisioning' : 'Ready'
    c.status.observed_generation = c.status.phase === 'Ready' ? c.generation : c.status.observed_generation
    c.status.last_transition_time = now()
    emit('clusters', { op: 'changed', item: c })
  }, 4000)
  setInterval(() => {
    const change = addChange(0, pick(resources.clusters), Math.floor(Math.random() * 3))
    changes.unshift(changes.pop())
    emit('changes', { op: 'changed', item: change })
  }, 7000)
}

createServer((req, res) => {
  serve(req, res).catch((err) => problem(res, 500, 'Internal Server Error', String(err.stack)))
}).listen(Number(flags.port), '127.0.0.1', function () {
  console.log(`mock console at http://127.0.0.1:${this.address().port}${BASE}`)
})
