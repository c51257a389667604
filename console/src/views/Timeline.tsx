// What changed before the alert?
import { useQuery, useQueryClient, keepPreviousData } from '@tanstack/react-query'
import { type PointerEvent, type ReactNode, useMemo, useRef, useState } from 'react'
import { fleet } from '../api/client'
import { bucketsQuery, canQuery, changesQuery, deliveriesQuery, undeliveredQuery } from '../api/queries'
import type { ChangeDelivery, ChangeEvent, Schemas } from '../api/types'
import { command, flag } from '../lib/cli'
import { deliveriesCommand, errorOf, mayRepeat, resendCommand, stateOf } from '../lib/deliveries'
import { pan, ticks, toIso, type Window, zoom } from '../lib/lanes'
import { formatClock, formatTime, parseMoment } from '../lib/time'
import { Head } from '../shell/head'
import { S } from '../strings'
import { Age, Answer, Cli, Copy, Moment, Notice, State, Tag } from '../ui/basics'
import { Action, type ActionSpec } from '../ui/dialog'
import { useKeys, useLater, useParamsInUrl, useRows } from '../ui/hooks'
import { Icon } from '../ui/icons'
import { useNow, useZone } from '../ui/prefs'

const SPANS = ['15m', '1h', '6h', '24h', '7d', '30d']
const LANES = ['cluster', 'node', 'actor'] as const
const OUTCOMES = ['succeeded', 'failed'] as const
const BUCKETS = 60

export function Timeline() {
  const [params, change] = useParamsInUrl()
  const [more, setMore] = useState(false)
  const now = useNow()
  // A window that ends now moves once per 10 seconds, so that the answer can be shared by its readers.
  const tick = Math.ceil(now / 10_000) * 10_000
  const fixed = params.to !== undefined
  const to = parseMoment(params.to, tick) ?? tick
  const from = parseMoment(params.from, to) ?? to - 3_600_000
  const window: Window = { from: Math.min(from, to - 1000), to }
  const by = LANES.find((l) => l === params.by) ?? 'cluster'
  const text = useLater(params.text ?? '')
  const filter = {
    since: toIso(window.from), until: toIso(window.to), cluster: params.cluster, node: params.node, actor: params.actor, outcome: OUTCOMES.find((o) => o === params.outcome),
    dry_run: params.dry ? params.dry === 'true' : undefined, text,
  }
  const buckets = useQuery({ ...bucketsQuery({ ...filter, by, buckets: BUCKETS }), placeholderData: keepPreviousData })
  const list = useQuery({ ...changesQuery({ ...filter, limit: 200 }), placeholderData: keepPreviousData })
  const items = list.data?.items ?? []
  const open = params.event
  const toggle = (i: number) => {
    const item = items[i]
    if (item) change({ event: open === item.id ? undefined : item.id })
  }
  const [cursor, point] = useRows(items.length, toggle)
  const show = (w: Window) => change({ from: toIso(w.from), to: toIso(w.to), event: undefined })
  const middle = (window.from + window.to) / 2
  useKeys({
    '+': () => show(zoom(window, 0.5, middle, tick)),
    '-': () => show(zoom(window, 2, middle, tick)),
    ArrowLeft: () => show(pan(window, -0.25, tick)),
    ArrowRight: () => show(pan(window, 0.25, tick)),
  })
  const link = () => {
    const url = new URL(location.href)
    url.searchParams.set('from', toIso(window.from))
    url.searchParams.set('to', toIso(window.to))
    return url.toString()
  }
  const filters = { cluster: params.cluster, node: params.node, actor: params.actor }

  return (
    <>
      <Head title={S.timeline} hint={<><Moment at={window.from} /> – <Moment at={window.to} /></>} asOf={list.dataUpdatedAt} live={!fixed}>
        <span className="button-group">
          <CopyLink link={link} />
          <button type="button" className="button" onClick={() => globalThis.print()}>{S.print}</button>
        </span>
        <Cli commands={[[S.cliChanges, command('fleetloop', 'changes', flag('cluster', params.cluster), flag('node', params.node), flag('actor', params.actor), `--since=${toIso(window.from)}`, fixed && `--until=${toIso(window.to)}`)]]} />
      </Head>
      <div className="toolbar" role="search">
        <label className="search"><Icon name="search" /><span className="hidden">{S.filterText}</span>
          <input data-filter type="search" value={params.text ?? ''} placeholder={S.filterText} onChange={(e) => change({ text: e.target.value })} /><kbd aria-hidden="true">/</kbd>
        </label>
        <button type="button" className="button filters-button" aria-expanded={more} onClick={() => setMore(!more)}>{S.filters}</button>
        <div className="more-filters" data-open={more}>
          {(['cluster', 'node', 'actor'] as const).map((name) => (
            <label key={name} className="search small"><span className="hidden">{S[name]}</span><input type="search" value={params[name] ?? ''} placeholder={S[name]} onChange={(e) => change({ [name]: e.target.value })} /></label>
          ))}
          <label className="inline">{S.outcome} <select value={params.outcome ?? ''} onChange={(e) => change({ outcome: e.target.value })}><option value="">{S.any}</option><option value="succeeded">{S.states.succeeded}</option><option value="failed">{S.states.failed}</option></select></label>
          <label className="inline">{S.dryRun} <select value={params.dry ?? ''} onChange={(e) => change({ dry: e.target.value })}><option value="">{S.any}</option><option value="false">{S.withoutDryRun}</option><option value="true">{S.onlyDryRun}</option></select></label>
        </div>
      </div>
      <div className="toolbar">
        <div className="chips" role="group" aria-label={S.span}>
          {SPANS.map((span) => <button key={span} type="button" className="chip" aria-pressed={!fixed && (params.from ?? '1h') === span} onClick={() => change({ from: span === '1h' ? undefined : span, to: undefined })}>{S.spans[span]}</button>)}
        </div>
        <span className="button-group" role="group" aria-label={S.zoom}>
          <button type="button" className="button" aria-label={S.earlier} onClick={() => show(pan(window, -0.5, tick))}>←</button>
          <button type="button" className="button" aria-label={S.zoomOut} onClick={() => show(zoom(window, 2, middle, tick))}>−</button>
          <button type="button" className="button" aria-label={S.zoomIn} onClick={() => show(zoom(window, 0.5, middle, tick))}>+</button>
          <button type="button" className="button" aria-label={S.later} onClick={() => show(pan(window, 0.5, tick))}>→</button>
        </span>
        {fixed && <button type="button" className="link" onClick={() => change({ from: undefined, to: undefined })}>{S.backToNow}</button>}
        <div className="chips" role="group" aria-label={S.lanesBy}>
          <span className="dim">{S.lanesBy}</span>
          {LANES.map((l) => <button key={l} type="button" className="chip" aria-pressed={by === l} onClick={() => change({ by: l === 'cluster' ? undefined : l })}>{S[l]}</button>)}
        </div>
      </div>
      {params.deliveries === 'failing' && <Undelivered close={() => change({ deliveries: undefined })} />}
      <Answer query={buckets} rows={5}>{(b) => <Lanes buckets={b} window={window} onWindow={show} onLane={(name) => change({ [by]: filters[by] === name ? undefined : name })} chosen={filters[by]} />}</Answer>
      <Answer query={list}>{() => items.length === 0
        ? <Notice icon="timeline" title={S.noChanges}>{S.noChangesHint}</Notice>
        : (
          <>
            <h2 className="list-title">{S.nChanges(items.length, list.data?.continue !== undefined)}</h2>
            <ol className="events">
              {items.map((c, i) => <EventRow key={c.id} change={c} within={params.cluster} at={i === cursor} open={open === c.id} toggle={() => { point(i); toggle(i) }} />)}
            </ol>
          </>
        )}
      </Answer>
    </>
  )
}

function CopyLink({ link }: { link: () => string }) {
  const [done, setDone] = useState(false)
  return (
    <button type="button" className="button" onClick={() => void navigator.clipboard.writeText(link()).then(() => {
      setDone(true)
      setTimeout(() => setDone(false), 1500)
    })}><Icon name="link" />{done ? S.copied : S.incidentLink}</button>
  )
}

const HEIGHT = 26

function Lanes({ buckets, window, onWindow, onLane, chosen }: { buckets: Schemas['ChangeBuckets']; window: Window; onWindow: (w: Window) => void; onLane: (name: string) => void; chosen?: string }) {
  const zone = useZone()
  const plot = useRef<HTMLDivElement>(null)
  const [drag, setDrag] = useState<[number, number]>()
  const span = { from: Date.parse(buckets.since), to: Date.parse(buckets.until) }
  const most = Math.max(1, ...buckets.lanes.flatMap((l) => l.counts))
  const offset = zone === 'utc' ? 0 : -new Date(window.to).getTimezoneOffset() * 60_000
  const marks = ticks(span, 6, offset)
  const share = (event: PointerEvent) => {
    const box = plot.current!.getBoundingClientRect()
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))
  }
  const time = (s: number) => span.from + s * (span.to - span.from)
  const days = span.to - span.from > 36 * 3_600_000
  return (
    <div className="lanes">
      <div className="lane-names">
        {buckets.lanes.map((lane) => {
          const n = lane.counts.reduce((a, b) => a + b, 0)
          const failed = (lane.failed ?? []).reduce((a, b) => a + b, 0)
          return (
            <button key={`${lane.cluster}/${lane.name}`} type="button" aria-pressed={chosen === lane.name} onClick={() => onLane(lane.name)} title={S.laneTitle(lane.name, n, failed)}>
              <span className="lane-name">{lane.name || S.noName}</span>
              {failed > 0 && <span className="state bad"><Icon name="bad" />{failed}<span className="hidden"> {S.states.failed}</span></span>}
              <b className="num">{n}</b>
            </button>
          )
        })}
      </div>
      <div className="plot" ref={plot}
        onPointerDown={(e) => {
          e.currentTarget.setPointerCapture(e.pointerId)
          setDrag([share(e), share(e)])
        }}
        onPointerMove={(e) => drag && setDrag([drag[0], share(e)])}
        onPointerCancel={() => setDrag(undefined)}
        onPointerUp={() => {
          if (drag && Math.abs(drag[1] - drag[0]) > 0.01) onWindow({ from: Math.round(time(Math.min(...drag))), to: Math.round(time(Math.max(...drag))) })
          setDrag(undefined)
        }}>
        {buckets.lanes.map((lane) => (
          <svg key={`${lane.cluster}/${lane.name}`} className="lane" viewBox={`0 0 ${lane.counts.length} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
            <path className="all" d={bars(lane.counts, most)} />
            {lane.failed && <path className="failed" d={bars(lane.counts, most, lane.failed)} />}
          </svg>
        ))}
        {marks.map((t) => <span key={t} className="tick" style={{ left: `${((t - span.from) / (span.to - span.from)) * 100}%` }}><span>{days ? formatTime(t, zone).slice(5, 16) : formatClock(t, zone, span.to - span.from < 600_000)}</span></span>)}
        {drag && <span className="brush" style={{ left: `${Math.min(...drag) * 100}%`, width: `${Math.abs(drag[1] - drag[0]) * 100}%` }} />}
      </div>
      {buckets.lanes.length === 0 && <p className="dim">{S.noLanes}</p>}
      <p className="legend dim"><span className="swatch all" />{S.changesWord}<span className="swatch failed" />{S.failedWord}<span>{S.dragHint}</span>{buckets.more_lanes ? <span>{S.moreLanes(buckets.more_lanes)}</span> : null}</p>
    </div>
  )
}

// The height follows the root of the count, so that one change is seen beside a hundred. A part has its share of the height.
function bars(counts: number[], most: number, parts = counts): string {
  return counts.map((n, i) => {
    const part = parts[i] ?? 0
    if (part === 0) return ''
    const h = (4 + (HEIGHT - 7) * Math.sqrt(n / most)) * (part / n)
    return `M${i + 0.12} ${HEIGHT}v${-h}h.76v${h}z`
  }).join('')
}

function EventRow({ change, within, at, open, toggle }: { change: ChangeEvent; within?: string; at: boolean; open: boolean; toggle: () => void }) {
  const zone = useZone()
  const failed = change.outcome === 'failed'
  return (
    <li className={`event${failed ? ' failed' : ''}${at ? ' at' : ''}${change.dryRun ? ' dry' : ''}${open ? ' open' : ''}`}>
      <button type="button" className="event-line" aria-expanded={open} onClick={toggle}>
        <time className="num" dateTime={change.timestamp} title={formatTime(change.timestamp, zone === 'utc' ? 'local' : 'utc')}>{formatTime(change.timestamp, zone).slice(5, 19)}</time>
        <span className={`state ${failed ? 'bad' : 'ok'}`}><Icon name={failed ? 'bad' : 'ok'} />{change.action}{failed && <span className="hidden"> {S.states.failed}</span>}</span>
        <span className="event-object">{[change.cluster !== within && change.cluster, change.subject || change.node].filter(Boolean).join(' / ') || change.cluster}</span>
        <span className="event-what">{change.dryRun && <Tag>{S.dryRun}</Tag>} {change.summary || change.reason}</span>
        <span className="dim event-who">{change.actor}</span>
      </button>
      {open && <EventDetail change={change} />}
    </li>
  )
}

function EventDetail({ change }: { change: ChangeEvent }) {
  const details = Object.entries(change.details ?? {})
  const fields = useMemo(() => change.changes ?? [], [change.changes])
  return (
    <div className="event-detail">
      <dl className="facts">
        <div><dt>{S.time}</dt><dd><Moment at={change.timestamp} /> · <Age at={change.timestamp} /></dd></div>
        <div><dt>{S.actor}</dt><dd>{change.actor}{change.source && change.source !== change.actor && <span className="dim"> {S.via} {change.source}</span>}</dd></div>
        {change.reason && <div><dt>{S.reason}</dt><dd>{change.reason}</dd></div>}
        {change.healthEvent?.message && <div><dt>{S.healthEvent}</dt><dd>{change.healthEvent.message}</dd></div>}
        {change.session && <div><dt>{S.session}</dt><dd className="mono">{change.session}</dd></div>}
        {details.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}
        <div><dt>{S.id}</dt><dd className="mono">{change.id} <Copy text={change.id} label={S.copyId} /></dd></div>
        {(change.links ?? []).filter((l) => /^https?:/.test(l.href)).map((l) => <div key={l.href}><dt>{S.link}</dt><dd><a href={l.href} rel="noreferrer noopener" target="_blank">{l.text || l.href}</a></dd></div>)}
      </dl>
      {fields.length > 0 && (
        <ul className="fields">
          {fields.map((f) => <li key={f.field}><code>{f.field}</code>{f.before !== undefined && <del><span className="hidden">{S.removed}</span>{JSON.stringify(f.before)}</del>}{f.after !== undefined && <ins><span className="hidden">{S.added}</span>{JSON.stringify(f.after)}</ins>}</li>)}
          {change.changesOmitted ? <li className="dim">{S.moreFields(change.changesOmitted)}</li> : null}
        </ul>
      )}
      <Deliveries id={change.id} />
    </div>
  )
}

/** Deliveries says to whom an event was sent, and sends it again. */
function Deliveries({ id }: { id: string }) {
  const query = useQuery(deliveriesQuery(id))
  const can = useQuery(canQuery('patch', 'clusters'))
  return (
    <section className="deliveries" aria-label={S.deliveries}>
      <header><h3>{S.deliveries}</h3><Cli commands={[[S.cliDeliveries, deliveriesCommand(id)]]} /></header>
      <Answer query={query} rows={2}>{(d) => !d.recorded
        ? <p className="dim">{S.notRecorded(d.reason ?? '')}</p>
        : <ul>{d.items.map((item) => <DeliveryLine key={item.sink} id={id} delivery={item} may={can.data?.allowed === true} />)}</ul>}
      </Answer>
    </section>
  )
}

/** Undelivered lists the deliveries that fail, each with its event. */
function Undelivered({ close }: { close: () => void }) {
  const query = useQuery(undeliveredQuery)
  const can = useQuery(canQuery('patch', 'clusters'))
  return (
    <section className="deliveries" aria-label={S.failingDeliveries}>
      <header>
        <h2>{S.failingDeliveries}</h2>
        <span className="button-group">
          <Cli commands={[[S.failingDeliveries, 'fleetloop changes deliveries --clusters']]} />
          <button type="button" className="button" onClick={close}>{S.showAllChanges}</button>
        </span>
      </header>
      <Answer query={query} rows={2}>{(list) => list.items.length === 0 ? <p className="dim">{S.noneUndelivered}</p> : (
        <>
          <ul>{list.items.map((u) => (
            <DeliveryLine key={`${u.event_id} ${u.delivery.sink}`} id={u.event_id} delivery={u.delivery} may={can.data?.allowed === true}>
              <b>{u.cluster}</b><span>{u.action} <Age at={u.time} /></span>
            </DeliveryLine>
          ))}</ul>
          {list.more && <p className="dim">{S.onlyFirst(list.items.length)}</p>}
        </>
      )}
      </Answer>
    </section>
  )
}

function DeliveryLine({ id, delivery: d, may, children }: { id: string; delivery: ChangeDelivery; may: boolean; children?: ReactNode }) {
  const queries = useQueryClient()
  const [key, renew] = useState(newKey) // the same after a failure, so that a repeated request is sent once
  const spec: ActionSpec = {
    label: S.resend, title: S.resendTitle(d.sink), explain: d.state === 'delivered' ? S.resendDelivered : S.resendExplain, reason: 'optional',
    command: ({ reason }) => resendCommand(id, d.sink, reason),
    run: async ({ reason }) => {
      const answer = (await fleet.POST('/changes/{id}/resend', { params: { path: { id }, header: { 'Idempotency-Key': key } }, body: { sink: d.sink, ...(reason ? { reason } : {}) } })).data
      renew(newKey)
      queries.setQueryData(deliveriesQuery(id).queryKey, { id, recorded: true, items: answer.items })
      void queries.invalidateQueries({ queryKey: ['changes'] })
      void queries.invalidateQueries({ queryKey: undeliveredQuery.queryKey })
    },
    done: S.resendDone(d.sink),
  }
  return (
    <li>
      {children}<State of={stateOf(d)} /><b>{d.sink}</b><span className="dim">{d.type}</span>
      <span>{S.nAttempts(d.attempts)}{d.last_attempt_at && <> · <Age at={d.last_attempt_at} /></>}{d.next_attempt_at && <> · {S.nextTry} <Age at={d.next_attempt_at} /></>}</span>
      {errorOf(d) && <span className="message">{errorOf(d)}</span>}
      {may && mayRepeat(d) && <Action spec={spec} />}
    </li>
  )
}

const newKey = () => `${Date.now()}-${Math.random().toString(36).slice(2)}`
