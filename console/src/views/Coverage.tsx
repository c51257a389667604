// Is every resource watched once?
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { checkCounts, seesAll } from '../api/hosts'
import { coverageQuery, sentinelsQuery, sessionQuery, summaryQuery } from '../api/queries'
import type { CoverageFinding, Sentinel } from '../api/types'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Cli, Failure, Loading, Notice, Panel, State, Tag } from '../ui/basics'
import { useHostLists, useHosts } from '../ui/hosts'

export function Coverage() {
  const { data: session } = useQuery(sessionQuery)
  const hosts = useHosts()
  const { lists, failures, pending, asOf } = useHostLists(sentinelsQuery)
  const all = lists.flatMap((l) => l.data.items).sort((a, b) => Number(a.ready) - Number(b.ready) || a.name.localeCompare(b.name))
  const { data: summary } = useQuery(summaryQuery)
  const { gaps, overlaps } = summary && !pending && seesAll(session) ? checkCounts(all, summary.kinds) : { gaps: [], overlaps: [] }
  const check = useQuery(coverageQuery)
  const found = all.length > 0 && !check.isError ? check.data : undefined
  return (
    <>
      <Head title={S.coverage} hint={S.coverageHint} asOf={asOf}>
        <Cli commands={[[S.cliCoverage, 'sentinel coverage FILE…'], [S.cliPlan, 'sentinel plan --config FILE']]} />
      </Head>
      {all.length > 0 && (
        <div className="toolbar">
          <button type="button" className="button" disabled={check.isFetching} onClick={() => void check.refetch()}>{check.isFetching ? S.checking : S.checkEach}</button>
          {found && !check.isFetching && <span className="dim">{S.checked(found.resources)} <Age at={found.as_of} /></span>}
        </div>
      )}
      {check.isError && <Failure error={check.error} retry={() => void check.refetch()} />}
      {failures.map((f) => <Failure key={f.host.name} error={f.error} retry={f.retry} />)}
      {found && (
        <>
          {found.gaps.length + found.overlaps.length + found.invalid + found.several_apis.length + gaps.length + overlaps.length === 0 && <Notice icon="ok" tone="ok" title={S.coveredOnce}>{S.eachWatchedOnce(found.resources)}</Notice>}
          {found.several_apis.length > 0 && <p className="error">{S.severalAPIs(found.several_apis.join(', '))}</p>}
          {found.invalid > 0 && <p className="error">{S.unreadable(found.invalid)}</p>}
          {found.inexact.map((why) => <p key={why} className="dim">{S.inexact(why)}</p>)}
          <Findings title={S.gaps} hint={S.gapsHint} findings={found.gaps} tone="bad" />
          <Findings title={S.overlaps} hint={S.overlapsHint} findings={found.overlaps} tone="warn" />
        </>
      )}
      {!found && seesAll(session) && lists.length > 0 && gaps.length === 0 && overlaps.length === 0 && all.length > 0 && <Notice icon="ok" tone="ok" title={S.coveredOnce}>{S.coveredOnceHint(all.length)}</Notice>}
      {!(found && found.gaps.length > 0) && <Findings title={S.gaps} hint={S.gapsHint} findings={gaps} tone="bad" />}
      {!(found && found.overlaps.length > 0) && <Findings title={S.overlaps} hint={S.overlapsHint} findings={overlaps} tone="warn" />}
      {all.length > 0
        ? <div className="tiles">{all.map((s) => <Card key={`${s.host}/${s.namespace}/${s.name}`} sentinel={s} many={hosts.length > 1} />)}</div>
        : pending ? <Loading />
          : hosts.length === 0 ? <Notice icon="coverage" title={S.noHosts}>{S.noHostsHint}</Notice>
            : failures.length < hosts.length && <Notice icon="coverage" title={S.noSentinels}>{S.noSentinelsHint}</Notice>}
    </>
  )
}

function Findings({ title, hint, findings, tone }: { title: string; hint: string; findings: CoverageFinding[]; tone: 'bad' | 'warn' }) {
  if (findings.length === 0) return null
  return (
    <Panel title={title} className={`findings ${tone}`} aside={<span className="dim">{hint}</span>}>
      <ul className="conditions">
        {findings.map((f) => (
          <li key={`${f.resource_type} ${f.selector} ${f.sentinels?.join()} ${f.shard} ${f.message}`}>
            <State of={tone === 'bad' ? 'Failed' : 'backing_off'} label={(f.others ? S.others : f.selector) || f.shard || S.kinds[f.resource_type as 'clusters'] || title} />
            {f.count !== undefined && <Tag tone={tone}>{S.nResources(f.count)}</Tag>}
            {f.sentinels?.map((s) => <Tag key={s}>{s}</Tag>)}
            <span className="message">{f.message ?? (tone === 'bad' ? S.gapOf(f.count ?? 0) : S.overlapOf(f.count ?? 0))}{(f.examples ?? []).length > 0 && <> {S.forExample} {f.examples?.map((x, i) => <span key={x.id}>{i > 0 && ', '}<Link to={f.resource_type === 'nodepools' ? '/nodepools/$id' : '/clusters/$id'} params={{ id: x.id }}>{x.name}</Link></span>)}</>}</span>
          </li>
        ))}
      </ul>
    </Panel>
  )
}

// A share that is this far behind is named, not only measured.
const LAG_S = 60

function Card({ sentinel: s, many }: { sentinel: Sentinel; many: boolean }) {
  return (
    <Panel title={<>{s.name} <span className="thin">{s.namespace}{many && ` · ${s.host}`}</span></>} aside={<State of={s.ready ? 'Ready' : 'Failed'} label={s.ready ? S.states.ready : S.notReady} />}>
      {!s.ready && s.message && <p className="error">{s.message}</p>}
      <dl className="facts">
        <div><dt>{S.watches}</dt><dd>{s.resource_type && (S.kinds[s.resource_type as 'clusters'] ?? s.resource_type)} <span className="num">· {S.count(s.resources_watched)}</span></dd></div>
        <div><dt>{S.selector}</dt><dd>{s.selector ? <code>{s.selector}</code> : S.everything}</dd></div>
        <div><dt>{S.published}</dt><dd className="num">{S.count(s.events_published)}</dd></div>
        <div><dt>{S.lastPoll}</dt><dd><Age at={s.last_poll} /></dd></div>
      </dl>
      {(s.shards?.length ?? 0) > 0 && (
        <ul className="shards" aria-label={S.shares}>
          {s.shards?.map((shard) => {
            const bad = !shard.holder
            const late = (shard.lag_seconds ?? 0) > LAG_S
            return (
              <li key={shard.index}>
                <State of={bad ? 'Failed' : late ? 'backing_off' : 'Ready'} label={S.share_n(shard.index)} />
                <span>{shard.holder || S.nobody}</span>
                <span className="dim num">{shard.resources_watched !== undefined && S.count(shard.resources_watched)}{shard.lag_seconds !== undefined && ` · ${S.lag(shard.lag_seconds)}`}</span>
              </li>
            )
          })}
        </ul>
      )}
    </Panel>
  )
}
