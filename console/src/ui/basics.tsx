// The smallest parts of the page: ages, states, badges, commands, buttons.
import type { UseQueryResult } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { FleetError } from '@fleetloop/client'
import { findLoss, isLive } from '../live/events'
import { useStream } from '../live/stream'
import { formatDuration, formatTime, millis } from '../lib/time'
import { S } from '../strings'
import { Icon, type IconName } from './icons'
import { useNow, useZone } from './prefs'

/** Age shows how long ago or in how long something is; the time itself is on hover and for screen readers. */
export function Age({ at, bare }: { at: string | number | undefined; bare?: boolean }) {
  const now = useNow()
  const ms = millis(at)
  if (ms === undefined) return <span className="dim">{S.none}</span>
  const text = formatDuration(Math.abs(now - ms))
  return (
    <time className="age" dateTime={new Date(ms).toISOString()} title={`${formatTime(ms, 'local')} · ${formatTime(ms, 'utc')}`}>
      {bare ? text : ms > now + 1000 ? S.inTime(text) : S.ago(text)}
    </time>
  )
}

/** Due shows in how long something happens, or the word for what is overdue. */
export function Due({ at, over }: { at: string | undefined; over: string }) {
  const now = useNow()
  const ms = millis(at)
  return ms !== undefined && ms <= now ? <>{over}</> : <Age at={at} />
}

/** Moment shows a point in time in the chosen zone, and in UTC on hover. */
export function Moment({ at }: { at: string | number | undefined }) {
  const zone = useZone()
  const ms = millis(at)
  if (ms === undefined) return <span className="dim">{S.none}</span>
  return (
    <time className="num" dateTime={new Date(ms).toISOString()} title={formatTime(ms, zone === 'utc' ? 'local' : 'utc')}>{formatTime(ms, zone)}</time>
  )
}

/** Freshness shows the age of the view's data. While the stream is live, the data is as old as its last word. */
export function Freshness({ asOf, live = true }: { asOf: number | string | undefined; live?: boolean }) {
  const now = useNow()
  const stream = useStream()
  const alive = isLive(stream, now)
  const at = Math.max(millis(asOf) ?? 0, live ? stream.current : 0)
  if (at === 0) return null
  const lost = live ? findLoss(stream, now) : undefined
  return (
    <span className={lost ? 'freshness lost' : 'freshness'}>
      {live && stream.phase !== 'idle' && <span className={alive ? 'dot' : 'dot off'} />}
      {S.asOf(formatDuration(Math.max(0, now - at)))}
      <span role="status">{lost && <> · {lost === 'connection' ? S.connectionLost : S.sourceLost(lost.map((t) => S.topics[t] ?? t).join(', '))}</>}</span>
    </span>
  )
}

export type Tone = 'ok' | 'busy' | 'idle' | 'bad' | 'warn' | 'gone' | 'pause'

const TONES: Record<string, [Tone, IconName]> = {
  Ready: ['ok', 'ok'], Provisioning: ['busy', 'busy'], Pending: ['idle', 'idle'], Failed: ['bad', 'bad'], Deleting: ['gone', 'gone'],
  synced: ['ok', 'ok'], running: ['busy', 'busy'], pending: ['idle', 'idle'], backing_off: ['warn', 'warn'], stuck: ['bad', 'bad'], paused: ['pause', 'pause'],
  ready: ['ok', 'ok'], progressing: ['busy', 'busy'], error: ['bad', 'bad'], deleting: ['gone', 'gone'], deleted: ['gone', 'gone'],
  validating: ['busy', 'busy'], validated: ['busy', 'busy'], waiting_approval: ['warn', 'pause'], executing: ['busy', 'busy'],
  rollback_ready: ['ok', 'ok'], completed: ['ok', 'ok'], failed: ['bad', 'bad'],
  Succeeded: ['ok', 'ok'], PartiallySucceeded: ['warn', 'warn'], succeeded: ['ok', 'ok'],
  detected: ['warn', 'warn'], cordoned: ['pause', 'pause'], draining: ['busy', 'busy'], repairing: ['busy', 'busy'],
  returning: ['busy', 'up'], held: ['pause', 'pause'], back: ['ok', 'ok'],
  due: ['busy', 'busy'], waiting: ['ok', 'ok'], invalid: ['bad', 'bad'], not_found: ['bad', 'bad'],
  delivered: ['ok', 'ok'], retrying: ['warn', 'warn'], skipped: ['idle', 'idle'], rejected: ['bad', 'bad'], expired: ['bad', 'bad'], True: ['ok', 'ok'], False: ['bad', 'bad'], Unknown: ['idle', 'help'],
  adapter: ['warn', 'warn'], gardener: ['bad', 'bad'], none_reported: ['idle', 'idle'], children: ['gone', 'nodepools'], approval: ['warn', 'pause'], pods: ['warn', 'stop'], budget: ['warn', 'pause'], person: ['bad', 'help'],
}

export function toneOf(state: string): [Tone, IconName] {
  return TONES[state] ?? ['idle', 'idle']
}

/** State shows one word with a symbol and a colour. */
export function State({ of, label }: { of: string; label?: string }) {
  const [tone, icon] = toneOf(of)
  return <span className={`state ${tone}`}><Icon name={icon} />{label ?? S.states[of] ?? of}</span>
}

export function Tag({ children, tone }: { children: ReactNode; tone?: Tone }) {
  return <span className={tone ? `tag ${tone}` : 'tag'}>{children}</span>
}

export function Labels({ of }: { of: Record<string, string> | undefined }) {
  const entries = Object.entries(of ?? {})
  if (entries.length === 0) return <span className="dim">{S.none}</span>
  return <span className="tags">{entries.map(([k, v]) => <Tag key={k}><b>{k}</b>{v && `=${v}`}</Tag>)}</span>
}

/** Copy copies a text and says so. */
export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false)
  return (
    <button type="button" className="copy" title={label} aria-label={`${label}: ${text}`}
      onClick={() => void navigator.clipboard.writeText(text).then(() => {
        setDone(true)
        setTimeout(() => setDone(false), 1500)
      })}>
      {done ? <span role="status">{S.copied}</span> : <Icon name="copy" />}
    </button>
  )
}

/** Command shows the command that does the same in a terminal. */
export function Command({ cmd }: { cmd: string }) {
  return <span className="command"><code>{cmd}</code><Copy text={cmd} label={S.copyCommand} /></span>
}

/** Cli offers the commands of a view behind one button. */
export function Cli({ commands }: { commands: [label: string, cmd: string | undefined][] }) {
  const shown = commands.filter((c): c is [string, string] => !!c[1])
  if (shown.length === 0) return null
  return (
    <details className="menu" onKeyDown={(e) => e.key === 'Escape' && e.currentTarget.removeAttribute('open')}
      onBlur={(e) => e.relatedTarget !== null && !e.currentTarget.contains(e.relatedTarget) && e.currentTarget.removeAttribute('open')}>
      <summary className="button"><Icon name="terminal" />{S.cli}</summary>
      <div className="menu-body">
        {shown.map(([label, cmd]) => <div key={label} className="cli"><span className="dim">{label}</span><Command cmd={cmd} /></div>)}
      </div>
    </details>
  )
}

export function Loading({ rows = 6 }: { rows?: number }) {
  return (
    <div className="loading" role="status">
      <span className="hidden">{S.loading}</span>
      {Array.from({ length: rows }, (_, i) => <div key={i} className="bone" />)}
    </div>
  )
}

export function Notice({ icon, title, children, tone }: { icon: IconName; title: string; children?: ReactNode; tone?: Tone }) {
  return <div className={`notice ${tone ?? ''}`}><Icon name={icon} /><div><strong>{title}</strong>{children && <div className="dim">{children}</div>}</div></div>
}

/** Failure says what failed, and what to do about it. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const api = error instanceof FleetError ? error : undefined
  if (api?.status === 403) return <Notice icon="stop" title={S.forbidden}>{api.detail || S.forbiddenHint}</Notice>
  if (api?.status === 404 && !api.detail) return <Notice icon="help" title={S.notFound}>{S.notFoundHint}</Notice>
  const title = api ? (api.status === 0 ? S.unreachable : api.message) : S.broken
  return (
    <div role="alert">
      <Notice icon="warn" tone="bad" title={title}>
        {api ? api.detail || (api.status === 0 ? S.unreachableHint : '') : String(error)}
        {api?.hint && <> {api.hint}</>}
        {retry && <p><button type="button" className="button" onClick={retry}>{S.tryAgain}</button></p>}
      </Notice>
    </div>
  )
}

/** Answer shows the data of a query, or the state in which there is none. */
export function Answer<T>({ query, rows, children }: { query: UseQueryResult<T>; rows?: number; children: (data: T) => ReactNode }) {
  if (query.data !== undefined) return <>{children(query.data)}</>
  if (query.error) return <Failure error={query.error} retry={() => void query.refetch()} />
  return <Loading rows={rows} />
}

/** Panel is one part of a view with a heading. */
export function Panel({ title, aside, children, className }: { title: ReactNode; aside?: ReactNode; children: ReactNode; className?: string }) {
  return (
    <section className={`panel ${className ?? ''}`}>
      <header><h2>{title}</h2>{aside}</header>
      {children}
    </section>
  )
}
