// Where is it? Clusters and node pools: filters, a heat grid, and a table of any length.
import { useQueries, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useCallback, useEffect, useMemo, useRef, useState } from 'react'
import { fleet } from '../api/client'
import { type ListFilter, listRequest, PAGE, readFilter } from '../api/lists'
import { pageQuery, type Row, summaryQuery } from '../api/queries'
import type { Kind, Schemas } from '../api/types'
import { command, flag } from '../lib/cli'
import { csvRow } from '../lib/csv'
import { toggleSelector } from '../lib/search'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Cli, Failure, Labels, Notice, State, toneOf } from '../ui/basics'
import { PHASES } from '../ui/counts'
import type { Column } from '../ui/grid'
import { useLater, useParamsInUrl, useRows } from '../ui/hooks'
import { Icon } from '../ui/icons'
import { PathLink } from '../ui/link'
import { say } from '../ui/toast'
import { VirtualGrid } from '../ui/virtual'

// A browser cannot show a document that is millions of rows high.
const MAX_ROWS = 400_000

export const Clusters = () => <List key="clusters" kind="clusters" />
export const NodePools = () => <List key="nodepools" kind="nodepools" />

function List({ kind }: { kind: Kind }) {
  const [params, change] = useParamsInUrl()
  const navigate = useNavigate()
  const text = useLater(params.text ?? '')
  const selector = useLater(params.labels ?? '', 400)
  const filter = useMemo<ListFilter>(
    () => ({ ...readFilter(params), labels: selector, text }),
    [selector, text, params],
  )
  const [range, setRange] = useState<[number, number]>([1, 1])
  // Scrolling within a page changes nothing here.
  const onRange = useCallback((first: number, last: number) => setRange((old) => {
    const pages: [number, number] = [Math.floor(first / PAGE) + 1, Math.floor(last / PAGE) + 1]
    return pages[0] === old[0] && pages[1] === old[1] ? old : pages
  }), [])
  const numbers = [...new Set([1, ...Array.from({ length: range[1] + 1 - range[0] }, (_, i) => range[0] + i)])]
  const pages = useQueries({ queries: numbers.map((n) => pageQuery(kind, filter, n)) })
  const first = pages[0]
  const lastTotal = useRef(0)
  if (first?.data) lastTotal.current = first.data.total ?? first.data.items.length
  const total = lastTotal.current
  const count = Math.min(total, MAX_ROWS)

  const row = useCallback((index: number): Row | undefined => {
    const at = numbers.indexOf(Math.floor(index / PAGE) + 1)
    return at < 0 ? undefined : pages[at]?.data?.items[index % PAGE]
  }, [numbers, pages])
  const open = (index: number) => {
    const item = row(index)
    if (item) void navigate({ to: `/${kind}/$id`, params: { id: item.id } })
  }
  const [cursor, point] = useRows(count, open)
  const sort = useCallback((by: string) => change({ order: by }), [change])
  const error = first?.error ?? pages.find((p) => p.error)?.error
  const filtered = !!(params.text || params.labels || params.phase || params.cluster)

  return (
    <div className="fill">
      <Head title={S.kinds[kind]} hint={first?.data && S.listHint(total, filtered)} asOf={first?.dataUpdatedAt}>
        <Export kind={kind} filter={filter} total={total} />
        <Cli commands={[[S.cliList, command('fleetloop', 'get', kind, params.labels && '-l', params.labels, flag('cluster', params.cluster))]]} />
      </Head>
      <div className="toolbar" role="search">
        <label className="search">
          <Icon name="search" /><span className="hidden">{S.filterName}</span>
          <input data-filter type="search" value={params.text ?? ''} placeholder={S.filterName} onChange={(e) => change({ text: e.target.value })} />
          <kbd aria-hidden="true">/</kbd>
        </label>
        <label className="search selector">
          <span className="hidden">{S.labelSelector}</span>
          <input type="search" spellCheck={false} value={params.labels ?? ''} placeholder={S.selectorExample} onChange={(e) => change({ labels: e.target.value })} />
        </label>
        <div className="chips" role="group" aria-label={S.phase}>
          {PHASES.map((phase) => {
            const on = (params.phase ?? '').split(',').includes(phase)
            const others = (params.phase ?? '').split(',').filter((p) => p && p !== phase)
            return <button key={phase} type="button" className="chip" aria-pressed={on} onClick={() => change({ phase: (on ? others : [...others, phase]).join(',') })}><State of={phase} /></button>
          })}
        </div>
        {params.cluster && <button type="button" className="chip" onClick={() => change({ cluster: undefined })}>{S.ofOneCluster} <Icon name="close" /></button>}
        {filtered && <button type="button" className="link" onClick={() => change({ text: undefined, labels: undefined, phase: undefined, cluster: undefined })}>{S.clear}</button>}
      </div>
      <Heat kind={kind} group={params.group} selector={params.labels ?? ''} change={change} />
      {total > MAX_ROWS && <Notice icon="help" title={S.tooMany(total, MAX_ROWS)} />}
      {error && !first?.data
        ? <Failure error={error} retry={() => void first?.refetch()} />
        : first?.data && total === 0
          ? <Notice icon={kind} title={filtered ? S.noMatch : S.noResources[kind]}>{filtered ? S.noMatchHint : S.noResourcesHint}</Notice>
          : (
            <VirtualGrid<Row> label={S.kinds[kind]} columns={COLUMNS[kind]} sort={filter.order} onSort={sort}
              count={first?.data ? count : 20} row={row} rowKey={(r) => r.id} onRange={onRange} cursor={cursor} onPoint={point} />
          )}
    </div>
  )
}

const name: Column<Row> = {
  id: 'name', label: S.name, track: 'minmax(140px, 2fr)', sort: 'name', narrow: 'main',
  cell: (r) => <PathLink key={r.id} path={`/${r.kind === 'NodePool' ? 'nodepools' : 'clusters'}/${r.id}`} className="strong">{r.name}</PathLink>,
}
const phase: Column<Row> = { id: 'phase', label: S.phase, track: '124px', sort: 'status.phase', cell: (r) => <State of={r.status.phase} /> }
const since: Column<Row> = { id: 'since', label: S.inPhase, track: '92px', sort: 'status.last_transition_time', num: true, cell: (r) => <Age at={r.status.last_transition_time} bare /> }
const generation: Column<Row> = {
  id: 'generation', label: S.generation, track: '104px', sort: 'generation', num: true,
  cell: (r) => <span className={r.status.observed_generation < r.generation ? 'behind' : undefined}>{S.observed(r.status.observed_generation, r.generation)}</span>,
}
const labels: Column<Row> = { id: 'labels', label: S.labels, track: 'minmax(120px, 3fr)', narrow: 'hide', cell: (r) => <Labels of={r.labels} /> }
const created: Column<Row> = { id: 'created', label: S.created, track: '84px', sort: 'created_time', num: true, narrow: 'hide', cell: (r) => <Age at={r.created_time} bare /> }

const COLUMNS: Record<Kind, Column<Row>[]> = {
  clusters: [
    name, phase, since, generation,
    { id: 'shoot', label: S.gardener, track: '120px', narrow: 'hide', cell: (r) => (r.status.shoot_status ? <State of={r.status.shoot_status} /> : <span className="dim">{S.none}</span>) },
    labels, created,
  ],
  nodepools: [
    name, phase, since, generation,
    { id: 'cluster', label: S.cluster, track: 'minmax(100px, 1fr)', narrow: 'hide', cell: (r) => (r.ownerResource ? <PathLink key={r.ownerResource.id} path={`/clusters/${r.ownerResource.id}`}>{r.clusterName ?? S.open}</PathLink> : <span className="dim">{S.none}</span>) },
    labels, created,
  ],
}

/** Heat groups the fleet by a label that the operator listed. */
function Heat({ kind, group, selector, change }: { kind: Kind; group: string | undefined; selector: string; change: (c: Record<string, string | undefined>) => void }) {
  const { data } = useQuery({ ...summaryQuery, enabled: kind === 'clusters' })
  const keys = Object.keys(data?.labels ?? {})
  if (kind !== 'clusters' || keys.length === 0) return null
  const cells = Object.entries((group && data?.labels?.[group]) || {}).sort(([a], [b]) => a.localeCompare(b))
  return (
    <div className="heat-box">
      <div className="chips" role="group" aria-label={S.groupBy}>
        <span className="dim">{S.groupBy}</span>
        {keys.map((key) => <button key={key} type="button" className="chip" aria-pressed={group === key} onClick={() => change({ group: group === key ? undefined : key })}>{key}</button>)}
      </div>
      {group && (
        <ul className="heat">
          {cells.map(([value, counts]) => {
            const on = selector.split(',').includes(`${group}=${value}`)
            return (
              <li key={value}>
                <button type="button" className={`cell ${heatOf(counts)}`} aria-pressed={on} onClick={() => change({ labels: toggleSelector(selector, group, value) })}>
                  <span className="cell-name">{value || S.withoutLabel}</span>
                  <span className="cell-counts"><HeatWord counts={counts} /><span className="num">{S.count(counts.total)}</span></span>
                  <span className="bar" aria-hidden="true">{PHASES.map((p) => counts.phases[p] ? <span key={p} className={toneOf(p)[0]} style={{ flexGrow: counts.phases[p] }} /> : null)}</span>
                </button>
              </li>
            )
          })}
        </ul>
      )}
    </div>
  )
}

function heatOf(counts: Schemas['LabelSummary']): string {
  const failed = counts.phases.Failed ?? 0
  const busy = counts.total - (counts.phases.Ready ?? 0) - failed
  if (failed > 0) return failed * 5 > counts.total ? 'bad hot' : 'bad'
  return busy > 0 ? 'busy' : 'ok'
}

function HeatWord({ counts }: { counts: Schemas['LabelSummary'] }) {
  const failed = counts.phases.Failed ?? 0
  const busy = counts.total - (counts.phases.Ready ?? 0) - failed
  if (failed > 0) return <State of="Failed" label={S.nFailed(failed)} />
  if (busy > 0) return <State of="Provisioning" label={S.nNotReady(busy)} />
  return <State of="Ready" label={S.allReady} />
}

const EXPORT_PAGE = 500

/** Export writes every match as CSV, page by page. */
function Export({ kind, filter, total }: { kind: Kind; filter: ListFilter; total: number }) {
  const [done, setDone] = useState<number>()
  const abort = useRef<AbortController | undefined>(undefined)
  useEffect(() => () => abort.current?.abort(), [])
  const run = async () => {
    const { signal } = (abort.current = new AbortController())
    const parts = [csvRow(['id', 'name', 'phase', 'generation', 'observed_generation', 'last_transition_time', 'created_time', 'labels'])]
    setDone(0)
    try {
      const [path, params] = listRequest(kind, { ...filter, order: undefined }, { limit: EXPORT_PAGE })
      let n = 0
      for await (const r of fleet.list(path, { params, signal })) {
        parts.push(csvRow([r.id, r.name, r.status.phase, r.generation, r.status.observed_generation, r.status.last_transition_time, r.created_time,
          Object.entries(r.labels ?? {}).map(([k, v]) => `${k}=${v}`).join(' ')]))
        if (++n % EXPORT_PAGE === 0) setDone(n)
      }
      const link = document.createElement('a')
      link.href = URL.createObjectURL(new Blob(parts, { type: 'text/csv' }))
      link.download = `${kind}-${new Date().toISOString().slice(0, 16).replace(':', '')}.csv`
      link.click()
      URL.revokeObjectURL(link.href)
      say(S.exported(n))
    } catch (err) {
      if (!signal.aborted) say(S.exportFailed(err instanceof Error ? err.message : String(err)))
    } finally {
      setDone(undefined)
    }
  }
  return (
    <button type="button" className="button" onClick={() => (done === undefined ? void run() : abort.current?.abort())}>
      <Icon name="down" />{done === undefined ? S.csv : S.exporting(done, total)}
    </button>
  )
}
