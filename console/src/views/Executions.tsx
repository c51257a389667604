// The inbox: what asks for a yes, and what became of it.
import { useQueries, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { write } from '../api/client'
import { executionsQuery, stopPath, stopQuery } from '../api/queries'
import type { EmergencyStop, Execution } from '../api/types'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Cli, Command, Due, Failure, Loading, Notice, State, Tag } from '../ui/basics'
import { Action } from '../ui/dialog'
import { type Column, Grid } from '../ui/grid'
import { useParamsInUrl, useRows } from '../ui/hooks'
import { useHostLists, useHosts } from '../ui/hosts'
import { Icon } from '../ui/icons'
import { UndeliveredChip } from '../ui/undelivered'

const GROUPS = {
  waiting: ['waiting_approval'],
  running: ['', 'validating', 'validated', 'executing'],
  reversible: ['rollback_ready'],
  ended: ['completed', 'failed'],
} as const
type Group = keyof typeof GROUPS

const isUndelivered = (e: Execution) => (e.undelivered_change_events ?? 0) > 0

export function Executions() {
  const [params, change] = useParamsInUrl()
  const navigate = useNavigate()
  const hosts = useHosts()
  const { lists, failures, pending, asOf } = useHostLists(executionsQuery)
  const all = lists.flatMap((l) => l.data.items)
  const group = (Object.keys(GROUPS) as Group[]).find((g) => g === params.group)
  const text = (params.text ?? '').toLowerCase()
  const inGroup = (e: Execution, g: Group) => (GROUPS[g] as readonly string[]).includes(e.phase)
  const rank = (e: Execution) => (inGroup(e, 'waiting') ? 0 : inGroup(e, 'running') ? 1 : 2)
  const rows = all
    .filter((e) => (!group || inGroup(e, group)) && (!params.host || e.host === params.host) && (params.deliveries !== 'failing' || isUndelivered(e))
      && (!text || [e.name, e.action, e.requested_by, e.target, e.reason].some((t) => t?.toLowerCase().includes(text))))
    .sort((a, b) => rank(a) - rank(b) || b.created.localeCompare(a.created))
  const [cursor, point] = useRows(rows.length, (i) => {
    const e = rows[i]
    if (e) void navigate({ to: '/executions/$host/$ns/$name', params: { host: e.host, ns: e.namespace, name: e.name } })
  })
  const columns: Column<Execution>[] = [
    { id: 'phase', label: S.state, track: '156px', cell: (e) => <State of={e.phase === 'failed' ? 'failed' : e.phase} /> },
    {
      id: 'what', label: S.action, track: 'minmax(200px, 2fr)', narrow: 'main',
      cell: (e) => (
        <span className="stacked">
          <Link to="/executions/$host/$ns/$name" params={{ host: e.host, ns: e.namespace, name: e.name }} className="strong">{e.action} <span className="thin">{e.target}</span></Link>
          <span className="dim sub">{e.name}{hosts.length > 1 && ` · ${e.host}`}</span>
        </span>
      ),
    },
    { id: 'impact', label: S.impact, track: 'minmax(120px, 1.4fr)', narrow: 'hide', cell: (e) => <span className="stacked"><span>{e.impact || <span className="dim">{S.none}</span>}</span>{e.environment && <span className="dim sub">{e.environment}</span>}</span> },
    { id: 'who', label: S.requestedBy, track: 'minmax(110px, 1.4fr)', cell: (e) => <span className="stacked"><span>{e.requested_by ?? S.unknown} {e.requested_by_agent && <Tag tone="warn">{e.requested_by_agent}</Tag>}</span>{e.reason && <span className="dim sub" title={e.reason}>{e.reason}</span>}</span> },
    { id: 'expires', label: S.expires, track: '100px', num: true, narrow: 'hide', cell: (e) => (e.expires && e.phase !== 'completed' && e.phase !== 'failed' ? <Due at={e.expires} over={S.expired} /> : <span className="dim">{S.none}</span>) },
    { id: 'age', label: S.age, track: '76px', num: true, cell: (e) => <Age at={e.created} bare /> },
  ]
  return (
    <>
      <Head title={S.executions} hint={S.executionsHint} asOf={asOf}>
        <Cli commands={[[S.cliWaiting, 'fleetloop exec get --phase=waiting_approval'], [S.cliWatch, 'fleetloop exec watch']]} />
      </Head>
      <Stops />
      <div className="toolbar" role="search">
        <label className="search"><Icon name="search" /><span className="hidden">{S.filterExecutions}</span>
          <input data-filter type="search" value={params.text ?? ''} placeholder={S.filterExecutions} onChange={(e) => change({ text: e.target.value })} /><kbd aria-hidden="true">/</kbd>
        </label>
        <div className="chips" role="group" aria-label={S.state}>
          {(Object.keys(GROUPS) as Group[]).map((g) => <button key={g} type="button" className="chip" aria-pressed={group === g} onClick={() => change({ group: group === g ? undefined : g })}>{S.groups[g]} <b className="num">{all.filter((e) => inGroup(e, g)).length}</b></button>)}
        </div>
        <UndeliveredChip count={all.filter(isUndelivered).length} pressed={params.deliveries === 'failing'} toggle={(deliveries) => change({ deliveries })} />
        {hosts.length > 1 && <label className="inline">{S.host} <select value={params.host ?? ''} onChange={(e) => change({ host: e.target.value })}><option value="">{S.all}</option>{hosts.map((h) => <option key={h.name}>{h.name}</option>)}</select></label>}
      </div>
      {failures.map((f) => <Failure key={f.host.name} error={f.error} retry={f.retry} />)}
      {rows.length > 0 ? <Grid rows={rows} rowKey={(e) => `${e.host}/${e.namespace}/${e.name}`} label={S.executions} columns={columns} cursor={cursor} onPoint={point} />
        : pending ? <Loading />
          : hosts.length === 0 ? <Notice icon="executions" title={S.noHosts}>{S.noHostsHint}</Notice>
            : failures.length < hosts.length && <Notice icon="ok" title={all.length ? S.noMatch : S.noExecutions}>{all.length ? S.noMatchHint : S.noExecutionsHint}</Notice>}
    </>
  )
}

/** Stops shows each emergency stop in force, and lets administrators set and end one. */
function Stops() {
  const hosts = useHosts()
  const stops = useQueries({ queries: hosts.map((h) => stopQuery(h.name)) })
  return <div className="stops">{hosts.map((h, i) => stops[i]?.data && <Stop key={h.name} host={h.name} stop={stops[i].data} />)}</div>
}

function Stop({ host, stop }: { host: string; stop: EmergencyStop }) {
  const queries = useQueryClient()
  const set = async (method: 'POST' | 'DELETE', reason: string) => {
    await write(method, stopPath(host), { reason })
    await queries.invalidateQueries({ queryKey: stopQuery(host).queryKey })
    void queries.invalidateQueries({ queryKey: ['executions'] })
  }
  const { data } = useQuery(executionsQuery(host))
  if (!stop.stopped) {
    if (!stop.can?.allowed || !data) return null
    return <Action spec={{ label: S.stopAll, icon: 'stop', tone: 'danger', title: S.stopAllOf(host), explain: S.stopExplain, reason: 'required', command: stop.command?.stop, run: ({ reason }) => set('POST', reason), done: S.stopped(host) }} />
  }
  return (
    <Notice icon="stop" tone="bad" title={S.stoppedOn(host)}>
      {stop.by && <Tag tone="bad">{stop.by}</Tag>} {stop.reason} · <Age at={stop.since} />
      {stop.can?.allowed
        ? <p><Action spec={{ label: S.resumeAll, title: S.resumeAllOf(host), explain: S.resumeExplain, reason: 'required', command: stop.command?.resume, run: ({ reason }) => set('DELETE', reason), done: S.resumed(host) }} /></p>
        : stop.command?.resume && <p><Command cmd={stop.command.resume} /></p>}
    </Notice>
  )
}
