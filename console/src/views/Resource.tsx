// The full story of one cluster or node pool.
import { FleetError } from '@fleetloop/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { lazy, Suspense, useMemo, useState } from 'react'
import { fleet } from '../api/client'
import { canQuery, changesQuery, decisionsQuery, resourceQuery, revisionsQuery, statusesQuery, syncQuery } from '../api/queries'
import type { ClusterSync, Kind, Resource, Schemas } from '../api/types'
import { command } from '../lib/cli'
import { diffLines, foldLines } from '../lib/diff'
import { sortKeys, toYaml } from '../lib/yaml'
import { Head } from '../shell/head'
import { S } from '../strings.resource'
import { Age, Answer, Cli, Command, Copy, Failure, Labels, Moment, Notice, Panel, State, Tag } from '../ui/basics'
import { ChangeLine } from '../ui/change'
import { Action } from '../ui/dialog'
import { Diff } from '../ui/diff'
import { useKeys, useParamsInUrl } from '../ui/hooks'
import { useHostLists } from '../ui/hosts'
import { syncAction } from '../ui/sync'

const Edit = lazy(() => import('./Edit'))

export const Cluster = () => <One kind="clusters" />
export const NodePool = () => <One kind="nodepools" />

const TABS = ['story', 'timeline', 'revisions', 'yaml'] as const
type Tab = (typeof TABS)[number]

function One({ kind }: { kind: Kind }) {
  const { id } = useParams({ strict: false }) as { id: string }
  const query = useQuery(resourceQuery(kind, id))
  return (
    <>
      {!query.data && <Head title={S.kinds[kind]} />}
      <Answer query={query} rows={10}>{({ body, etag }) => <Story key={id} kind={kind} resource={body} etag={etag} asOf={query.dataUpdatedAt} />}</Answer>
    </>
  )
}

function Story({ kind, resource, etag, asOf }: { kind: Kind; resource: Resource; etag: string; asOf: number }) {
  const [params, change] = useParamsInUrl()
  const tab: Tab = TABS.find((t) => t === params.tab) ?? 'story'
  const [edit, setEdit] = useState(false)
  const can = useQuery(canQuery('patch', kind, resource.name))
  const sync = useQuery({ ...syncQuery(resource.id), enabled: kind === 'clusters' })
  const noun = kind === 'clusters' ? 'cluster' : 'nodepool'
  const mayEdit = can.data?.allowed === true && !resource.deleted_time
  useKeys({
    e: mayEdit ? () => setEdit(true) : undefined,
    ...Object.fromEntries(TABS.map((t, i) => [String(i + 1), () => change({ tab: t === 'story' ? undefined : t })])),
  })
  const { status } = resource
  return (
    <>
      <p className="crumbs"><Link to={`/${kind}`}>{S.kinds[kind]}</Link>{resource.ownerResource && <> / <Link to="/clusters/$id" params={{ id: resource.ownerResource.id }}>{S.itsCluster}</Link></>}</p>
      <Head title={<>{resource.name} <State of={status.phase} /></>} asOf={asOf}
        hint={<>{S.forAge} <Age at={status.last_transition_time} bare /> · <span className="mono">{resource.id}</span> <Copy text={resource.id} label={S.copyId} /></>}>
        {mayEdit && <button type="button" className="button" onClick={() => setEdit(true)}>{S.edit}</button>}
        {can.data && !can.data.allowed && <span className="dim" title={can.data.reason}>{S.readOnly}</span>}
        {kind === 'clusters' && sync.data && <SyncActions sync={sync.data} />}
        <Cli commands={[
          [S.cliDescribe, command('fleetloop', 'describe', noun, resource.name)],
          [S.cliYaml, command('fleetloop', 'get', noun, resource.name, '-o', 'yaml')],
          [S.cliChanges, kind === 'clusters' ? command('fleetloop', 'changes', '--cluster', resource.name) : undefined],
          [S.cliWait, command('fleetloop', 'wait', noun, resource.name, '--for=phase=Ready')],
        ]} />
      </Head>
      {sync.data?.pause && kind === 'clusters' && (
        <Notice icon="pause" tone="warn" title={S.syncPausedBy(sync.data.pause.by, sync.data.pause.reason)}>
          {S.syncPausedHint} {S.forAge} <Age at={sync.data.pause.since} bare />{sync.data.pause.until && <> · {S.ends} <Age at={sync.data.pause.until} /></>}
        </Notice>
      )}
      <div className="tabs" role="tablist" aria-label={S.parts}>
        {TABS.map((t) => <button key={t} id={`tab-${t}`} type="button" role="tab" aria-selected={tab === t} aria-controls="part" onClick={() => change({ tab: t === 'story' ? undefined : t })}>{S.tabs[t]}</button>)}
      </div>
      <div id="part" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === 'story' && <Overview kind={kind} resource={resource} sync={sync} />}
        {tab === 'timeline' && <Changes resource={resource} kind={kind} />}
        {tab === 'revisions' && <Revisions kind={kind} resource={resource} />}
        {tab === 'yaml' && <Panel title={S.yaml} aside={<Copy text={toYaml(resource)} label={S.copyYaml} />}><pre className="code" tabIndex={0}>{toYaml(resource)}</pre></Panel>}
      </div>
      {edit && <Suspense><Edit kind={kind} resource={resource} etag={etag} onClose={() => setEdit(false)} /></Suspense>}
    </>
  )
}

/** SentinelDecisions says whether an event is due about the resource, by which rule, and when the next one is. */
function SentinelDecisions({ kind, resource }: { kind: Kind; resource: Resource }) {
  const { lists, failures, pending } = useHostLists((host) => decisionsQuery(host, kind, resource.id, resource.generation))
  const all = lists.flatMap(({ data }) => data.items)
  const watching = all.filter((d) => d.state !== 'not_watched')
  return (
    <Panel title={S.sentinelDecision}>
      {failures.filter(({ error }) => !(error instanceof FleetError && error.status === 403)).map(({ host, error, retry }) => <Failure key={host.name} error={error} retry={retry} />)}
      <ul className="conditions">
        {watching.map((d) => (
          <li key={`${d.host}/${d.namespace}/${d.name}`}>
            <State of={d.state} label={`${d.name}: ${S.decisionStates[d.state] ?? d.state}`} />
            {d.next && <span className="dim">{S.nextEvent} <Age at={d.next} bare /></span>}
            <span className="message">{d.message}</span>
            {d.inputs && <span className="dim sub">{S.decisionInputs(d.inputs.observed_generation, d.inputs.generation, d.inputs.phase, d.inputs.max_age_seconds)}</span>}
          </li>
        ))}
      </ul>
      {!pending && watching.length === 0 && <p className="dim">{all.length > 0 ? S.notSelected(all.length) : S.noDecision}</p>}
      {watching.length > 0 && <p className="dim">{S.rulesOnly}</p>}
      <Command cmd={command('sentinel', 'why', resource.name, '--config', 'FILE')} />
    </Panel>
  )
}

function Overview({ kind, resource, sync }: { kind: Kind; resource: Resource; sync: ReturnType<typeof useQuery<ClusterSync>> }) {
  const statuses = useQuery(statusesQuery(kind, resource.id))
  const { status } = resource
  const behind = status.observed_generation < resource.generation
  return (
    <div className="tiles">
      <Panel title={S.generations}>
        <dl className="facts">
          <div><dt>{S.desired}</dt><dd className="num">{resource.generation}</dd></div>
          <div><dt>{S.observedLowest}</dt><dd className="num"><span className={`state ${behind ? 'busy' : 'ok'}`}>{status.observed_generation}{behind ? ` · ${S.behind(resource.generation - status.observed_generation)}` : ''}</span></dd></div>
          <div><dt>{S.oldestReport}</dt><dd><Age at={status.last_updated_time} /></dd></div>
          <div><dt>{S.created}</dt><dd><Age at={resource.created_time} />{resource.created_by && ` ${S.byPerson(resource.created_by)}`}</dd></div>
          <div><dt>{S.updated}</dt><dd><Age at={resource.updated_time} />{resource.updated_by && ` ${S.byPerson(resource.updated_by)}`}</dd></div>
          {resource.deleted_time && <div><dt>{S.deletion}</dt><dd><Age at={resource.deleted_time} />{resource.deleted_by && ` ${S.byPerson(resource.deleted_by)}`}</dd></div>}
          <div><dt>{S.labels}</dt><dd><Labels of={resource.labels} /></dd></div>
          {kind === 'clusters' && <div><dt>{S.kinds.nodepools}</dt><dd><Link to="/nodepools" search={{ cluster: resource.id } as never}>{S.show}</Link></dd></div>}
        </dl>
      </Panel>
      {kind === 'clusters' && (
        <Panel title={S.sync} aside={sync.data && <State of={sync.data.state} />}>
          <Answer query={sync} rows={4}>{(s) => <SyncFacts sync={s} />}</Answer>
        </Panel>
      )}
      <SentinelDecisions kind={kind} resource={resource} />
      <Panel title={S.adapterReports} className={kind === 'clusters' ? 'two' : 'three'}>
        <Answer query={statuses} rows={3}>{(page) => page.items.length === 0
          ? <p className="dim">{S.noReports}</p>
          : (
            <ul className="reports">
              {page.items.map((report) => {
                const stale = report.observed_generation < resource.generation
                return (
                  <li key={report.adapter}>
                    <div className="report-head">
                      <b>{report.adapter}</b>
                      <span className={stale ? 'state warn' : 'state ok'}>{S.generationOf(report.observed_generation, resource.generation)}</span>
                      <span className="dim">{S.reported} <Age at={report.last_report_time} /></span>
                    </div>
                    <ul className="conditions">
                      {report.conditions.map((c) => (
                        <li key={c.type}><State of={c.status} label={`${c.type}: ${c.status}`} /><span className="dim"><Age at={c.last_transition_time} bare /></span>{(c.message || c.reason) && <span className="message">{c.reason && <b>{c.reason}</b>} {c.message}</span>}</li>
                      ))}
                    </ul>
                  </li>
                )
              })}
            </ul>
          )}
        </Answer>
      </Panel>
      <Panel title={S.conditions}>
        {status.conditions.length === 0 && <p className="dim">{S.noReports}</p>}
        <ul className="conditions">
          {status.conditions.map((c) => (
            <li key={c.type}><State of={c.status} label={`${c.type}: ${c.status}`} /><span className="dim"><Age at={c.last_transition_time} bare /></span>{(c.message || c.reason) && <span className="message">{c.reason && <b>{c.reason}</b>} {c.message}</span>}</li>
          ))}
        </ul>
      </Panel>
      <Panel title={S.latestChanges} className="three" aside={<Link to="." search={{ tab: 'timeline' } as never}>{S.all}</Link>}><ChangeList kind={kind} resource={resource} limit={6} /></Panel>
    </div>
  )
}

function SyncFacts({ sync }: { sync: ClusterSync }) {
  return (
    <dl className="facts">
      <div><dt>{S.syncedChanges}</dt><dd className="num">{S.observed(sync.synced_generation, sync.generation)} <span className="dim">{S.withPools}</span></dd></div>
      {sync.unsynced_since && <div><dt>{S.unsyncedSince}</dt><dd><Age at={sync.unsynced_since} /></dd></div>}
      <div><dt>{S.failedAttempts}</dt><dd className="num">{sync.sync_attempts}{sync.sync_last_attempt && <> · {S.lastAttempt} <Age at={sync.sync_last_attempt} /></>}</dd></div>
      {sync.next_attempt && <div><dt>{S.nextTry}</dt><dd><Age at={sync.next_attempt} /></dd></div>}
      {sync.claimed_by && <div><dt>{S.worker}</dt><dd>{sync.claimed_by}</dd></div>}
      {sync.waiting && <div><dt>{S.waitsFor}</dt><dd>{sync.waiting.for}: {sync.waiting.reason} · <Age at={sync.waiting.since} /></dd></div>}
      {(sync.pause || sync.paused_at) && <div><dt>{S.paused}</dt><dd><Age at={sync.pause?.since ?? sync.paused_at} />{sync.pause && <> {sync.pause.by && S.byPerson(sync.pause.by)}{sync.pause.reason && `: ${sync.pause.reason}`}{sync.pause.until && <> · {S.ends} <Age at={sync.pause.until} /></>}</>}</dd></div>}
      {sync.shoot_status && <div><dt>{S.shoot} {sync.shoot_name}</dt><dd><State of={sync.shoot_status} /> <Age at={sync.shoot_status_updated} /></dd></div>}
      {sync.sync_error && <div className="wide"><dt>{S.lastError}</dt><dd className="error">{sync.error_class && <Tag tone="bad">{sync.error_class}</Tag>} {sync.sync_error}</dd></div>}
      {sync.shoot_status_message && <div className="wide"><dt>{S.gardenerSays}</dt><dd>{sync.shoot_status_message}</dd></div>}
    </dl>
  )
}

function SyncActions({ sync }: { sync: ClusterSync }) {
  const queries = useQueryClient()
  const can = useQuery(canQuery('pause', 'clusters', sync.name))
  if (!can.data?.allowed) return null
  const make = (verb: 'retry' | 'pause' | 'resume') => syncAction(verb, [sync.name], async ({ reason, until }) => {
    const body = verb === 'pause' ? { reason, until } : reason ? { reason } : undefined
    const { data: answer } = await fleet.POST(`/clusters/{id}/sync/${verb}`, { params: { path: { id: sync.cluster_id } }, body })
    queries.setQueryData(syncQuery(sync.cluster_id).queryKey, answer)
    void queries.invalidateQueries({ queryKey: ['changes'] })
  })
  return (
    <>
      {sync.state !== 'synced' && sync.state !== 'paused' && <Action spec={make('retry')} disabled={sync.state === 'running'} why={S.syncRunning} />}
      <Action spec={make(sync.state === 'paused' ? 'resume' : 'pause')} />
    </>
  )
}

function ChangeList({ kind, resource, limit }: { kind: Kind; resource: Resource; limit: number }) {
  const query = useQuery(changesQuery(kind === 'clusters' ? { cluster: resource.name, limit } : { subject: `nodepools/${resource.name}`, limit }))
  return (
    <Answer query={query} rows={3}>{(page) => page.items.length === 0
      ? <p className="dim">{S.noChanges}</p>
      : <ul className="changes">{page.items.slice(0, limit).map((c) => <ChangeLine key={c.id} change={c} />)}</ul>}
    </Answer>
  )
}

function Changes({ resource, kind }: { resource: Resource; kind: Kind }) {
  return (
    <Panel title={S.timeline} aside={kind === 'clusters' && <Link to="/timeline" search={{ cluster: resource.name, from: '24h' } as never}>{S.openTimeline}</Link>}>
      <ChangeList kind={kind} resource={resource} limit={100} />
    </Panel>
  )
}

function Revisions({ kind, resource }: { kind: Kind; resource: Resource }) {
  const [params, change] = useParamsInUrl()
  const query = useQuery(revisionsQuery(kind, resource.id))
  return (
    <Answer query={query}>{({ items }) => {
      if (items.length === 0) return <Notice icon="help" title={S.noRevisions} />
      const chosen = items.find((r) => String(r.generation) === params.revision) ?? items[0]!
      const before = items[items.indexOf(chosen) + 1]
      return (
        <div className="split">
          <ol className="revisions" aria-label={S.revisions}>
            {items.map((r) => (
              <li key={r.generation}>
                <button type="button" aria-pressed={r === chosen} onClick={() => change({ revision: String(r.generation) })}>
                  <b>{S.generation} {r.generation}</b>{r.generation === resource.generation && <Tag tone="ok">{S.current}</Tag>}
                  <span className="dim"><Age at={r.created_time} /> {r.actor && S.byPerson(r.actor)}</span>
                </button>
              </li>
            ))}
          </ol>
          <Panel title={before ? S.changedFrom(before.generation, chosen.generation) : S.firstRevision(chosen.generation)} aside={<Moment at={chosen.created_time} />}>
            <RevisionDiff before={before} after={chosen} />
          </Panel>
        </div>
      )
    }}
    </Answer>
  )
}

function RevisionDiff({ before, after }: { before: Schemas['Revision'] | undefined; after: Schemas['Revision'] }) {
  const lines = useMemo(() => {
    const text = (r: Schemas['Revision'] | undefined) => (r ? toYaml({ labels: sortKeys(r.labels ?? {}), spec: sortKeys(r.spec) }) : '')
    return foldLines(diffLines(text(before), text(after)))
  }, [before, after])
  return <Diff lines={lines} label={S.revisions} />
}
