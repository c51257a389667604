// Which node is sick, and what is being done?
import { useQueryClient } from '@tanstack/react-query'
import { write } from '../api/client'
import { nodePath, nodesQuery } from '../api/queries'
import type { FaultNode, SinkDelivery } from '../api/types'
import { withReason } from '../lib/cli'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Cli, Command, Failure, Loading, Moment, Notice, State, Tag, toneOf } from '../ui/basics'
import { Budget } from '../ui/budget'
import { Action } from '../ui/dialog'
import { useParamsInUrl, useRows } from '../ui/hooks'
import { useHostLists, useHosts } from '../ui/hosts'
import { Icon } from '../ui/icons'
import { UndeliveredChip } from '../ui/undelivered'

const STAGES = ['detected', 'cordoned', 'draining', 'repairing', 'returning', 'held', 'back'] as const

export function Nodes() {
  const [params, change] = useParamsInUrl()
  const hosts = useHosts()
  const { lists, failures, pending, asOf } = useHostLists(nodesQuery)
  const all = lists.flatMap((l) => l.data.items)
  const text = (params.text ?? '').toLowerCase()
  const rank = (n: FaultNode) => (n.stage === 'back' ? 1 : 0)
  const rows = all
    .filter((n) => (!params.stage || n.stage === params.stage) && (params.deliveries !== 'failing' || isUndelivered(n)) && (!text || [n.name, n.reason, n.fault_code, ...(n.blocking ?? []).map((b) => b.pod)].some((t) => t?.toLowerCase().includes(text))))
    .sort((a, b) => rank(a) - rank(b) || a.since.localeCompare(b.since))
  const toggle = (n: FaultNode | undefined) => n && change({ node: params.node === n.name ? undefined : n.name })
  const [cursor, point] = useRows(rows.length, (i) => toggle(rows[i]))
  return (
    <>
      <Head title={S.nodes} hint={S.nodesHint} asOf={asOf}>
        <Cli commands={[[S.cliFaults, 'fleetloop faults get --all -o wide']]} />
      </Head>
      <div className="budgets">{lists.flatMap(({ host, data }) => (data.budgets ?? []).map((b) => <Budget key={`${host.name}/${b.pool}`} host={hosts.length > 1 ? host.name : ''} {...b} />))}</div>
      <ol className="funnel" aria-label={S.stages}>
        {STAGES.map((stage) => {
          const n = all.filter((node) => node.stage === stage).length
          return (
            <li key={stage}>
              <button type="button" className={`stage ${n ? toneOf(stage)[0] : 'idle'}`} aria-pressed={params.stage === stage} onClick={() => change({ stage: params.stage === stage ? undefined : stage })}>
                <b className="num big">{n}</b><State of={stage} />
              </button>
            </li>
          )
        })}
      </ol>
      <div className="toolbar" role="search">
        <label className="search"><Icon name="search" /><span className="hidden">{S.filterNodes}</span>
          <input data-filter type="search" value={params.text ?? ''} placeholder={S.filterNodes} onChange={(e) => change({ text: e.target.value })} /><kbd aria-hidden="true">/</kbd>
        </label>
        <UndeliveredChip count={all.filter(isUndelivered).length} pressed={params.deliveries === 'failing'} toggle={(deliveries) => change({ deliveries })} />
      </div>
      {failures.map((f) => <Failure key={f.host.name} error={f.error} retry={f.retry} />)}
      {rows.length > 0
        ? <ul className="cards">{rows.map((n, i) => <Card key={`${n.host}/${n.name}`} node={n} many={hosts.length > 1} at={i === cursor} open={params.node === n.name} toggle={() => { point(i); toggle(n) }} />)}</ul>
        : pending ? <Loading />
          : hosts.length === 0 ? <Notice icon="nodes" title={S.noHosts}>{S.noHostsHint}</Notice>
            : failures.length < hosts.length && <Notice icon="ok" tone="ok" title={all.length ? S.noMatch : S.noFaults}>{all.length ? S.noMatchHint : S.noFaultsHint}</Notice>}
    </>
  )
}

const isUndelivered = (n: FaultNode) => (n.undelivered_change_events ?? 0) > 0 || n.deliveries?.some((d) => d.lost > 0) === true

function Card({ node: n, many, at, open, toggle }: { node: FaultNode; many: boolean; at: boolean; open: boolean; toggle: () => void }) {
  const queries = useQueryClient()
  const host = useHosts().find((h) => h.name === n.host)
  const send = (verb: 'hold' | 'release') => async ({ reason }: { reason: string }) => {
    await write('POST', `${nodePath(n.host ?? '', n.name)}/${verb}`, { reason })
    await queries.invalidateQueries({ queryKey: ['nodes'] })
  }
  const verbs = (['hold', 'release'] as const).filter((v) => n.can?.[v]?.allowed && host?.writes !== false)
  return (
    <li className={`card${at ? ' at' : ''}`}>
      <div className="card-head">
        <h2><button type="button" className="card-name" aria-expanded={open} onClick={toggle}><Icon name={open ? 'up' : 'down'} /><b>{n.name}</b></button></h2>
        <State of={n.stage} />
        <span className="dim">{S.forAge} <Age at={n.since} bare /></span>
        {n.fault_code && <Tag tone="bad">{n.fault_code}</Tag>}
        {n.remedy && <Tag>{n.remedy}</Tag>}
        {many && <span className="dim">{n.host}</span>}
        <span className="buttons">
          {verbs.map((v) => (
            <Action key={v} spec={{
              label: S.verbs[v]!, title: S.nodeTitles[v](n.name), explain: S.nodeExplains[v], reason: 'required', run: send(v), done: S.nodeDone[v](n.name),
              command: ({ reason }) => withReason(n.command?.[v], reason),
            }} />
          ))}
        </span>
      </div>
      {n.reason && <p className="card-reason">{n.reason}</p>}
      {(n.blocking?.length ?? 0) > 0 && (
        <ul className="blocking">
          {n.blocking?.map((b) => (
            <li key={`${b.namespace}/${b.pod}`}><Icon name="stop" /><span><b>{b.namespace ? `${b.namespace}/` : ''}{b.pod}</b> {b.budget ? S.heldByBudget(b.budget) : S.heldBy(b.blocked_by ?? S.unknown)}{b.since && <> · <Age at={b.since} bare /></>}{b.message && <span className="dim sub">{b.message}</span>}</span></li>
          ))}
        </ul>
      )}
      {open && (
        <div className="card-more">
          <dl className="facts">
            {n.session && <div><dt>{S.session}</dt><dd className="mono">{n.session}</dd></div>}
            {n.pods_left !== undefined && <div><dt>{S.podsLeft}</dt><dd className="num">{n.pods_left}</dd></div>}
            {n.deadline && <div><dt>{S.deadline}</dt><dd><Age at={n.deadline} /></dd></div>}
            {n.undelivered_change_events ? <div><dt>{S.undelivered}</dt><dd className="num">{n.undelivered_change_events}</dd></div> : null}
          </dl>
          {(n.faults?.length ?? 0) > 0 && <><h3>{S.faults}</h3><ul className="conditions">{n.faults?.map((f) => <li key={f.source + f.check + f.entity}><State of={f.fatal ? 'Failed' : 'detected'} label={[f.check, f.entity].filter(Boolean).join(' ')} />{f.error_codes?.map((c) => <Tag key={c} tone="bad">{c}</Tag>)}<span className="dim">{f.source} · <Age at={f.detected} /></span>{f.message && <span className="message">{f.message}</span>}</li>)}</ul></>}
          {(n.history?.length ?? 0) > 0 && <><h3>{S.history}</h3><ol className="phases">{n.history?.map((r, i) => <li key={i}><State of={r.outcome === 'failed' ? 'failed' : 'succeeded'} label={r.action} /><span className="dim"><Moment at={r.at} /></span>{r.message && <span className="message">{r.message}</span>}</li>)}</ol></>}
          {(n.deliveries?.length ?? 0) > 0 && <Deliveries node={n.name} deliveries={n.deliveries ?? []} />}
          {host?.writes === false && <p className="dim">{host.why_not}</p>}
          {Object.entries(n.command ?? {}).map(([v, cmd]) => cmd && <div key={v} className="cli"><span className="dim">{S.verbs[v] ?? v}</span><Command cmd={cmd} /></div>)}
        </div>
      )}
    </li>
  )
}

/** Deliveries shows which sinks have the change events of a node. */
function Deliveries({ node, deliveries }: { node: string; deliveries: SinkDelivery[] }) {
  return (
    <section className="deliveries" aria-label={S.deliveries}>
      <header><h3>{S.deliveries}</h3></header>
      <ul>
        {deliveries.map((d) => (
          <li key={d.sink}>
            <State of={d.state} /><b>{d.sink}</b>
            <span>{[d.waiting > 0 && S.eventsWait(d.waiting), d.lost > 0 && S.eventsLost(d.lost)].filter(Boolean).join(', ')}</span>
            {d.delivered_at && <span className="dim">{S.lastDelivery} <Age at={d.delivered_at} /></span>}
            {d.error && <span className="message">{d.error}{d.failed_at && <> · <Age at={d.failed_at} /></>}</span>}
          </li>
        ))}
      </ul>
      {deliveries.some((d) => d.lost > 0) && <div className="cli"><span className="dim">{S.resend}</span><Command cmd={`fleetloop changes deliveries --resend ${node}`} /></div>}
    </section>
  )
}
