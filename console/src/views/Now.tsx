// Is something on fire?
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { checkCounts, seesAll } from '../api/hosts'
import { changesQuery, executionsQuery, nodesQuery, nowQuery, sentinelsQuery, sessionQuery } from '../api/queries'
import type { Kind, Schemas } from '../api/types'
import { literalPart } from '../lib/search'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Answer, Cli, Failure, Loading, Panel, State, Tag, type Tone } from '../ui/basics'
import { Counts, PHASES, SYNC_STATES } from '../ui/counts'
import { useLasting } from '../ui/hooks'
import { useHostLists, useHosts } from '../ui/hosts'
import { Icon, type IconName } from '../ui/icons'
import { Budget } from '../ui/budget'
import { ChangeLine } from '../ui/change'

interface Alarm { tone: Tone; icon: IconName; text: string; age?: string; to: string; search?: Record<string, string> }

const FAILING = { deliveries: 'failing' }

export function Now() {
  const summary = useQuery(nowQuery)
  const { data: session } = useQuery(sessionQuery)
  const hosts = useHosts()
  const executions = useHostLists(executionsQuery)
  const nodes = useHostLists(nodesQuery)
  const sentinels = useHostLists(sentinelsQuery)
  const changes = useQuery(changesQuery({ limit: 10 }))

  const waiting = executions.lists.flatMap((l) => l.data.items).filter((e) => e.phase === 'waiting_approval')
    .sort((a, b) => (a.expires ?? '').localeCompare(b.expires ?? ''))
  const out = nodes.lists.flatMap((l) => l.data.items).filter((n) => n.stage !== 'back')
  const unready = sentinels.lists.flatMap((l) => l.data.items).filter((s) => !s.ready)
  const watchers = sentinels.lists.flatMap((l) => l.data.items)
  const { gaps, overlaps } = summary.data && !sentinels.pending && seesAll(session) ? checkCounts(watchers, summary.data.kinds) : { gaps: [], overlaps: [] }
  const undelivered = {
    nodes: countUndelivered(nodes.lists.flatMap((l) => l.data.items)), executions: countUndelivered(executions.lists.flatMap((l) => l.data.items)),
  }
  const blocked = out.filter((n) => (n.blocking?.length ?? 0) > 0)

  const alarms: Alarm[] = []
  const add = (when: unknown, alarm: Alarm) => when && alarms.push(alarm)
  const failed = summary.data?.kinds.clusters?.phases.Failed ?? 0
  const stuck = summary.data?.sync.states.stuck ?? 0
  const oldest = summary.data?.kinds.clusters?.oldest_not_ready
  add(failed, { tone: 'bad', icon: 'bad', text: S.clustersFailed(failed), age: oldest?.since, to: '/clusters', search: { phase: 'Failed' } })
  add(stuck, { tone: 'bad', icon: 'stuck', text: S.syncsStuck(stuck), age: summary.data?.sync.oldest_unsynced?.since, to: '/stuck', search: { cause: 'gardener' } })
  const unwatched = gaps.reduce((n, g) => n + (g.count ?? 0), 0)
  const lasting = useLasting(unwatched > 0, 120_000) // a sentinel reports what it watches only now and then
  const overlapsLast = useLasting(overlaps.length > 0, 120_000)
  add(lasting, { tone: 'bad', icon: 'coverage', text: S.gapsNow(unwatched), to: '/coverage' })
  add(waiting.length, { tone: 'warn', icon: 'pause', text: S.waitingNow(waiting.length), age: waiting[0]?.created, to: '/executions' })
  add(blocked.length, { tone: 'warn', icon: 'nodes', text: S.drainsBlocked(blocked.length), age: blocked[0]?.since, to: '/nodes' })
  const deliveries = summary.data?.deliveries
  const gone = deliveries?.given_up ?? 0
  add(gone, { tone: 'bad', icon: 'warn', text: S.givenUpNow(gone), to: '/timeline', search: FAILING })
  add(deliveries?.failing, { tone: 'warn', icon: 'warn', text: S.failingNow(deliveries?.failing ?? 0), age: deliveries?.failing_since, to: '/timeline', search: FAILING })
  add(undelivered.nodes, { tone: 'warn', icon: 'warn', text: S.undeliveredOfNodes(undelivered.nodes), to: '/nodes', search: FAILING })
  add(undelivered.executions, { tone: 'warn', icon: 'warn', text: S.undeliveredOfExecutions(undelivered.executions), to: '/executions', search: FAILING })

  return (
    <>
      <Head title={S.now} hint={S.nowHint} asOf={summary.data?.as_of}>
        <Cli commands={[[S.cliClusters, 'fleetloop get clusters'], [S.cliSync, 'fleetloop clusters sync --state stuck,backing_off -o wide'], [S.cliWaiting, 'fleetloop exec get --phase=waiting_approval']]} />
      </Head>
      {summary.data && (
        <ul className="alarms">
          {alarms.length === 0 && <li className="alarm ok"><Icon name="ok" /><span>{S.calm}</span></li>}
          {alarms.map((a) => (
            <li key={a.text}><Link to={a.to} search={(a.search ?? {}) as never} className={`alarm ${a.tone}`}><Icon name={a.icon} /><span>{a.text}</span>{a.age && <span className="dim">{S.oldest} <Age at={a.age} bare /></span>}</Link></li>
          ))}
        </ul>
      )}
      <div className="tiles">
        <KindTile kind="clusters" query={summary} />
        <KindTile kind="nodepools" query={summary} />
        <Panel title={<Link to="/stuck">{S.sync}</Link>}>
          <Answer query={summary} rows={3}>{(s) => s.sync
            ? (
              <>
                <Counts counts={s.sync.states} order={SYNC_STATES} to="/stuck" param="sync" />
                {s.sync.oldest_unsynced && <Oldest label={S.oldestUnsynced} kind="clusters" {...s.sync.oldest_unsynced} />}
              </>
            )
            : <p className="dim">{S.noSync}</p>}
          </Answer>
        </Panel>

        <Panel title={S.topReasons} className="two" aside={<span className="dim">{S.topReasonsHint}</span>}>
          <Answer query={summary}>{(s) => <Reasons summary={s} />}</Answer>
        </Panel>
        <Panel title={<Link to="/executions">{S.waitingApproval}</Link>} aside={<b className="num">{waiting.length}</b>}>
          {executions.failures.map((f) => <Failure key={f.host.name} error={f.error} retry={f.retry} />)}
          {executions.pending && executions.lists.length === 0 ? <Loading rows={3} /> : waiting.length === 0 && <p className="dim">{hosts.length ? S.nothingWaits : S.noHosts}</p>}
          <ul className="lines">
            {waiting.slice(0, 5).map((e) => (
              <li key={`${e.host}/${e.namespace}/${e.name}`}>
                <Link to="/executions/$host/$ns/$name" params={{ host: e.host, ns: e.namespace, name: e.name }}>
                  <span><b>{e.action}</b> {e.target}</span>
                  <span className="dim">{S.byPerson(e.requested_by ?? S.unknown)} · {S.requestExpires} <Age at={e.expires} /></span>
                </Link>
              </li>
            ))}
          </ul>
        </Panel>

        <Panel title={<Link to="/nodes">{S.nodesOut}</Link>}>
          {nodes.failures.map((f) => <Failure key={f.host.name} error={f.error} retry={f.retry} />)}
          {nodes.lists.flatMap(({ host, data }) => (data.budgets ?? []).map((b) => <Budget key={`${host.name}/${b.pool}`} host={nodes.lists.length > 1 ? host.name : ''} {...b} />))}
          {out.length === 0 ? <p className="dim">{hosts.length ? S.noNodesOut : S.noHosts}</p> : (
            <ul className="lines">
              {out.slice(0, 4).map((n) => (
                <li key={`${n.host}/${n.name}`}><Link to="/nodes" search={{ node: n.name } as never}><span><b>{n.name}</b></span><span className="dim"><State of={n.stage} /> <Age at={n.since} bare /></span></Link></li>
              ))}
            </ul>
          )}
        </Panel>
        <Panel title={<Link to="/coverage">{S.coverage}</Link>}>
          {sentinels.failures.map((f) => <Failure key={f.host.name} error={f.error} retry={f.retry} />)}
          {watchers.length === 0 ? <p className="dim">{hosts.length ? S.noSentinels : S.noHosts}</p> : <dl className="facts">
            <div><dt>{S.sentinelsNotReady}</dt><dd><Number n={unready.length} of={watchers.length} /></dd></div>
            {seesAll(session) && <><div><dt>{S.gaps}</dt><dd><Number n={lasting ? gaps.length : 0} /></dd></div><div><dt>{S.overlaps}</dt><dd><Number n={overlapsLast ? overlaps.length : 0} /></dd></div></>}
          </dl>}
        </Panel>
        <Panel title={<Link to="/timeline" search={FAILING as never}>{S.deliveries}</Link>}>
          <Answer query={summary} rows={3}>{() => <dl className="facts">
            <div><dt>{S.failingDeliveries}</dt><dd><Number n={deliveries?.failing ?? 0} /></dd></div>
            <div><dt>{S.givenUp}</dt><dd><Number n={gone} /></dd></div>
            {hosts.length > 0 && <div><dt>{S.undeliveredOfHosts}</dt><dd><Number n={undelivered.nodes + undelivered.executions} /></dd></div>}
          </dl>}
          </Answer>
        </Panel>

        <Panel title={<Link to="/timeline">{S.latestChanges}</Link>} className="three">
          <Answer query={changes}>{(page) => page.items.length === 0
            ? <p className="dim">{S.noChanges}</p>
            : <ul className="changes">{page.items.slice(0, 8).map((c) => <ChangeLine key={c.id} change={c} />)}</ul>}
          </Answer>
        </Panel>
      </div>
    </>
  )
}

function KindTile({ kind, query }: { kind: Kind; query: Parameters<typeof Answer<Schemas['Summary']>>[0]['query'] }) {
  const total = query.data?.kinds[kind]?.total
  return (
    <Panel title={<Link to={`/${kind}`}>{S.kinds[kind]}</Link>} aside={total !== undefined && <b className="num big">{S.count(total)}</b>}>
      <Answer query={query} rows={3}>{(s) => {
        const counts = s.kinds[kind]
        if (!counts?.total) return <p className="dim">{S.noneYet}</p>
        return (
          <>
            <Counts counts={counts.phases} order={PHASES} to={`/${kind}`} param="phase" />
            {counts.oldest_not_ready && <Oldest label={S.oldestNotReady} kind={kind} {...counts.oldest_not_ready} />}
          </>
        )
      }}
      </Answer>
    </Panel>
  )
}

function Oldest({ label, kind, id, name, since }: { label: string; kind: Kind; id: string; name: string; since: string }) {
  return <p className="oldest"><span className="dim">{label}</span> <Link to={`/${kind}/$id`} params={{ id }}>{name}</Link> <Age at={since} bare /></p>
}

function Reasons({ summary }: { summary: Schemas['Summary'] }) {
  const reasons = summary.top_reasons
  if (reasons.length === 0) return <p className="dim">{S.noReasons}</p>
  const most = Math.max(...reasons.map((r) => r.count))
  return (
    <ol className="reasons">
      {reasons.slice(0, 6).map((r) => (
        <li key={`${r.source} ${r.reason}`}>
          <b className="num">{S.count(r.count)}</b>
          <span className="reason">
            <span className="reason-text" title={r.reason}>{r.reason}</span>
            <span className="dim"><Tag>{r.source}</Tag> {S.forAge} <Age at={r.since} bare />{r.example && <> · {S.forExample} <Link to={r.example.kind.toLowerCase().startsWith('node') ? '/nodepools/$id' : '/clusters/$id'} params={{ id: r.example.id }}>{r.example.name}</Link></>}</span>
            <meter className="share" aria-label={S.share(r.reason)} min={0} max={most} value={r.count} />
          </span>
          <Link className="button" to="/stuck" search={{ text: literalPart(r.reason) } as never} aria-label={S.showStuck(r.reason)}>{S.show}</Link>
        </li>
      ))}
    </ol>
  )
}

function Number({ n, of }: { n: number; of?: number }) {
  return <span className={n > 0 ? 'state bad' : 'state ok'}><Icon name={n > 0 ? 'bad' : 'ok'} /><span className="num">{S.count(n)}{of !== undefined && ` ${S.of} ${S.count(of)}`}</span></span>
}

const countUndelivered = (items: { undelivered_change_events?: number }[]) => items.reduce((n, item) => n + (item.undelivered_change_events ?? 0), 0)
