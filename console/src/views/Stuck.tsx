// What waits, how long, for what?
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { fleet } from '../api/client'
import { canQuery, executionsQuery, nodesQuery, stuckQuery, syncsQuery } from '../api/queries'
import type { ClusterSync, Execution, FaultNode, Schemas, SyncState } from '../api/types'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Cli, Due, Failure, Loading, Notice, State, Tag } from '../ui/basics'
import { Action, type ActionSpec, type Input } from '../ui/dialog'
import { type Column, Grid } from '../ui/grid'
import { useParamsInUrl, useRows } from '../ui/hooks'
import { useHostLists } from '../ui/hosts'
import { Icon } from '../ui/icons'
import { syncAction } from '../ui/sync'

/** A row of the list: what waits, since when, and what blocks it. */
interface Row {
  key: string
  kind: 'clusters' | 'nodepools' | 'executions' | 'nodes'
  name: string
  within?: string
  id: string
  state: string
  since: string
  cause: string
  by?: string
  message?: string
  attempts?: number
  next?: string
  pausable?: boolean
  to: { to: string; params?: Record<string, string>; search?: Record<string, string> }
}

const KINDS = ['clusters', 'nodepools', 'executions', 'nodes'] as const
const CAUSES = ['adapter', 'gardener', 'paused', 'none_reported', 'children', 'approval', 'pods', 'budget', 'person'] as const
const BULK = 500
const OLDER: [string, string][] = [['0s', S.anyTime], ['1m', '1 min'], ['', '5 min'], ['30m', '30 min'], ['2h', '2 h'], ['24h', '24 h']]

function fromStuck(item: Schemas['StuckResource']): Row {
  const kind = item.kind.toLowerCase().startsWith('node') ? 'nodepools' : 'clusters'
  return {
    key: `${kind}/${item.id}`, kind, id: item.id, name: item.name, within: item.cluster_name, state: item.phase, since: item.since,
    cause: item.cause.type, by: [item.cause.adapter, item.cause.code ?? item.cause.reason].filter(Boolean).join(' '), message: item.cause.message, attempts: item.attempts, next: item.next_attempt,
    pausable: kind === 'clusters', to: { to: `/${kind}/$id`, params: { id: item.id } },
  }
}

function fromSync(s: ClusterSync): Row {
  return {
    key: `sync/${s.cluster_id}`, kind: 'clusters', id: s.cluster_id, name: s.name, state: s.state, since: s.unsynced_since ?? s.synced ?? '',
    cause: s.state === 'paused' ? 'paused' : 'gardener', by: s.pause?.by ?? s.error_class, message: s.pause?.reason ?? s.sync_error ?? s.shoot_status_message, attempts: s.sync_attempts,
    next: s.next_attempt ?? s.pause?.until, pausable: true, to: { to: '/clusters/$id', params: { id: s.cluster_id } },
  }
}

function fromExecution(e: Execution): Row {
  return {
    key: `executions/${e.host}/${e.namespace}/${e.name}`, kind: 'executions', id: e.name, name: e.target ?? e.action, within: `${e.action} · ${e.name} · ${e.host}`, state: e.phase,
    since: e.phase_since ?? e.created, cause: 'approval', by: e.approval?.groups?.join(', '),
    message: S.approvalsOf(e.approval?.received ?? 0, e.approval?.required ?? 1, e.requested_by ?? S.unknown), next: e.expires,
    to: { to: '/executions/$host/$ns/$name', params: { host: e.host, ns: e.namespace, name: e.name } },
  }
}

function fromNode(n: FaultNode): Row {
  const pod = n.blocking?.[0]
  const more = (n.blocking?.length ?? 1) - 1
  return {
    key: `nodes/${n.host}/${n.name}`, kind: 'nodes', id: n.name, name: n.name, within: n.host, state: n.stage, since: n.since, cause: pod ? 'pods' : n.phase === 'Pending' ? 'budget' : 'person',
    by: pod?.budget ?? pod?.blocked_by, message: pod ? S.podBlocks(pod.namespace ? `${pod.namespace}/${pod.pod}` : pod.pod, more) : n.reason, next: n.deadline,
    to: { to: '/nodes', search: { node: n.name } },
  }
}

export function Stuck() {
  const [params, change] = useParamsInUrl()
  const navigate = useNavigate()
  const queries = useQueryClient()
  const kind = KINDS.find((k) => k === params.kind)
  const cause = CAUSES.find((c) => c === params.cause)
  const ofFleet = kind !== 'executions' && kind !== 'nodes' && cause !== 'approval' && cause !== 'pods' && cause !== 'budget' && cause !== 'person'
  const { sync } = params
  const waiting = useQuery({ ...stuckQuery(ofFleet ? { kind, cause: cause && [cause], older_than: params.older } : {}), enabled: ofFleet && !sync })
  const syncs = useQuery({ ...syncsQuery((sync ?? '').split(',') as SyncState[]), enabled: !!sync })
  const stuck = sync ? syncs : waiting
  const executions = useHostLists(executionsQuery)
  const nodes = useHostLists(nodesQuery)
  const can = useQuery(canQuery('pause', 'clusters'))
  const [picked, setPicked] = useState<ReadonlySet<string>>(new Set())

  const all: Row[] = (sync ? (syncs.data?.items ?? []).map(fromSync) : [
    ...(ofFleet ? (waiting.data?.items ?? []).map(fromStuck) : []),
    ...executions.lists.flatMap((l) => l.data.items).filter((e) => e.phase === 'waiting_approval').map(fromExecution),
    ...nodes.lists.flatMap((l) => l.data.items).filter((n) => n.waits).map(fromNode),
  ]).sort((a, b) => a.since.localeCompare(b.since))
  const text = (params.text ?? '').toLowerCase()
  const rows = all.filter((r) => (!kind || r.kind === kind) && (!cause || r.cause === cause)
    && (!text || [r.name, r.within, r.by, r.message].some((t) => t?.toLowerCase().includes(text))))

  const go = (i: number) => {
    const row = rows[i]
    if (row) void navigate({ to: row.to.to, params: row.to.params, search: (row.to.search ?? {}) as never })
  }
  const toggle = (row: Row) => {
    if (!row.pausable) return
    const next = new Set(picked)
    if (!next.delete(row.id)) next.add(row.id)
    setPicked(next)
  }
  const [cursor, point] = useRows(rows.length, go, (i) => rows[i] && toggle(rows[i]))
  const chosen = rows.filter((r) => r.pausable && picked.has(r.id)).slice(0, BULK)

  const bulk = (verb: 'retry' | 'pause' | 'resume'): ActionSpec => ({
    ...syncAction(verb, chosen.map((r) => r.name), async ({ reason, until }: Input) => {
      const { data: { changed, failed } } = await fleet.POST(`/clusters/sync/${verb}`, { body: { ids: chosen.map((r) => r.id), reason: reason || undefined, until } })
      void queries.invalidateQueries({ queryKey: ['stuck'] })
      if (failed.length > 0) {
        const name = (id: string) => chosen.find((r) => r.id === id)?.name ?? id
        throw new Error(S.partly(changed, failed.map((f) => `${name(f.id)}: ${f.detail || f.code}`)))
      }
      setPicked(new Set())
    }),
  })

  const columns: Column<Row>[] = [
    {
      id: 'name', label: S.name, track: 'minmax(150px, 2fr)', narrow: 'main',
      cell: (r) => <span className="named"><Icon name={r.kind} /><span><Link to={r.to.to} params={r.to.params} search={(r.to.search ?? {}) as never} className="strong">{r.name}</Link>{r.within && <span className="dim sub">{r.within}</span>}</span></span>,
    },
    { id: 'since', label: S.waits, track: '92px', num: true, cell: (r) => <b><Age at={r.since} bare /></b> },
    { id: 'state', label: S.state, track: '150px', cell: (r) => <State of={r.state} /> },
    {
      id: 'cause', label: S.blockedBy, track: 'minmax(270px, 4fr)', narrow: 'full',
      cell: (r) => <span className="cause"><span><State of={r.cause} label={S.causes[r.cause] ?? r.cause} />{r.by && <Tag>{r.by}</Tag>}</span>{r.message && <span className="message" title={r.message}>{r.message}</span>}</span>,
    },
    { id: 'attempts', label: S.attempts, track: '76px', num: true, cell: (r) => r.attempts ?? <span className="dim">{S.none}</span> },
    { id: 'next', label: S.nextTry, track: '132px', num: true, cell: (r) => (r.next ? <>{r.cause === 'approval' && <span className="dim">{S.expires} </span>}<Due at={r.next} over={r.cause === 'approval' ? S.expired : S.dueNow} /></> : <span className="dim">{S.none}</span>) },
  ]
  const loading = ((ofFleet || sync) && stuck.isPending) || executions.pending || nodes.pending

  return (
    <>
      <Head title={S.stuck} hint={S.stuckHint} asOf={stuck.dataUpdatedAt || executions.asOf}>
        <Cli commands={[[S.cliStuck, 'fleetloop clusters sync --state stuck,backing_off -o wide'], [S.cliRetryAll, 'fleetloop clusters retry --all-stuck'], [S.cliWaiting, 'fleetloop exec get --phase=waiting_approval'], [S.cliFaults, 'fleetloop faults get']]} />
      </Head>
      <div className="toolbar" role="search">
        <label className="search"><Icon name="search" /><span className="hidden">{S.filterStuck}</span>
          <input data-filter type="search" value={params.text ?? ''} placeholder={S.filterStuck} onChange={(e) => change({ text: e.target.value })} /><kbd aria-hidden="true">/</kbd>
        </label>
        <div className="chips" role="group" aria-label={S.kind}>
          {KINDS.map((k) => <button key={k} type="button" className="chip" aria-pressed={kind === k} onClick={() => change({ kind: kind === k ? undefined : k })}><Icon name={k} />{S.kinds[k]} <b className="num">{all.filter((r) => r.kind === k).length}</b></button>)}
        </div>
        <div className="chips" role="group" aria-label={S.blockedBy}>
          {CAUSES.map((c) => <button key={c} type="button" className="chip" aria-pressed={cause === c} onClick={() => change({ cause: cause === c ? undefined : c })}>{S.causes[c]}</button>)}
        </div>
        {sync && <button type="button" className="chip" aria-pressed onClick={() => change({ sync: undefined })}>{S.sync}: {S.states[sync] ?? sync} <Icon name="close" /></button>}
        <label className="inline">{S.longerThan} <select value={params.older ?? ''} onChange={(e) => change({ older: e.target.value })}>{OLDER.concat(OLDER.some(([v]) => v === (params.older ?? '')) ? [] : [[params.older!, params.older!]]).map(([v, l]) => <option key={l} value={v}>{l}</option>)}</select></label>
      </div>
      {can.data?.allowed && (
        <div className="bulk" role="group" aria-label={S.bulk}>
          <button type="button" className="link" onClick={() => setPicked(chosen.length ? new Set() : new Set(rows.filter((r) => r.pausable).slice(0, BULK).map((r) => r.id)))}>{chosen.length ? S.unselect(chosen.length) : S.selectClusters}</button>
          {chosen.length > 0 && (['retry', 'pause', 'resume'] as const).map((v) => <Action key={v} spec={bulk(v)} />)}
        </div>
      )}
      {stuck.error && <Failure error={stuck.error} retry={() => void stuck.refetch()} />}
      {[...executions.failures, ...nodes.failures].map((f, i) => <Failure key={i} error={f.error} retry={f.retry} />)}
      {rows.length > 0
        ? <Grid rows={rows} rowKey={(r) => r.key} label={S.stuck} columns={columns} cursor={cursor} onPoint={point}
            selection={can.data?.allowed ? { has: (r) => picked.has(r.id), toggle, name: (r) => r.name, can: (r) => r.pausable === true } : undefined} />
        : loading ? <Loading /> : !stuck.error && <Notice icon="ok" tone="ok" title={kind || cause || text ? S.noMatch : S.nothingStuck}>{kind || cause || text ? S.noMatchHint : S.nothingStuckHint}</Notice>}
      {stuck.data?.continue && <p className="dim">{S.firstOnly(stuck.data.items.length)}</p>}
    </>
  )
}
