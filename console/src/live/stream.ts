// The one event stream of the page, and what it does to the cached answers.
import type { QueryClient } from '@tanstack/react-query'
import { useSyncExternalStore } from 'react'
import { type RawExecution, type RawNode, readExecution, readNode } from '../api/hosts'
import { buildUrl } from '../api/requests'
import type { Page } from '../api/types'
import { type Change, createThrottle, IDLE, keyOf, patchItems, reduceStream, SILENT_MS, type StreamInput, type StreamState, type Topic } from './events'

const RECONNECT_MS = [500, 1000, 2000, 5000, 10_000]
const REFRESH_MS = 2000
const REORDER_MS = 10_000

// The lists that follow from a topic without being made of its items.
const DERIVED: Record<Topic, string[]> = {
  clusters: ['summary', 'stuck'],
  nodepools: ['summary', 'stuck'],
  changes: ['buckets'],
  executions: [],
  nodes: [],
  sentinels: [],
}

let state: StreamState = IDLE
const listeners = new Set<() => void>()

function apply(input: StreamInput): void {
  state = reduceStream(state, input)
  for (const listener of listeners) listener()
}

/** useStream returns the state of the connection. */
export function useStream(): StreamState {
  return useSyncExternalStore((listener) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }, () => state)
}

// Items of host clusters come as the lists have them.
function readChange(topic: Topic, change: Change): Change {
  if (change.op === 'removed') return change
  if (topic === 'executions') return { ...change, item: defined(readExecution(change.item as unknown as RawExecution)) }
  if (topic === 'nodes') return { ...change, item: defined(readNode(change.item as unknown as RawNode)) }
  return change
}

// What an event does not say stays as it was.
function defined(item: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(item).filter(([, value]) => value !== undefined))
}

/** openStream follows the topics until the returned function is called. */
export function openStream(topics: Topic[], queries: QueryClient): () => void {
  if (topics.length === 0) {
    apply({ type: 'stop' })
    return () => {}
  }
  let source: EventSource | undefined
  let retry: ReturnType<typeof setTimeout> | undefined
  let attempt = 0
  let stopped = false

  const refreshers = new Map<string, () => void>()
  const refresh = (name: string, interval = REFRESH_MS) => {
    let run = refreshers.get(name + interval)
    if (!run) {
      run = createThrottle(() => {
        if (!stopped) void queries.invalidateQueries({ queryKey: [name] })
      }, interval)
      refreshers.set(name + interval, run)
    }
    run()
  }

  const receive = (topic: Topic, event: MessageEvent<string>) => {
    apply({ type: 'event', at: Date.now(), cursor: event.lastEventId })
    const change = readChange(topic, JSON.parse(event.data) as Change)
    let found = false
    for (const [key, data] of queries.getQueriesData<Page<unknown>>({ queryKey: [topic] })) {
      if (key[1] === 'one') {
        if (key[2] === keyOf(topic, change)) void queries.invalidateQueries({ queryKey: key, exact: true })
        continue
      }
      if (!data?.items) continue
      const items = patchItems(data.items, topic, change)
      if (items === data.items) continue
      found = true
      queries.setQueryData(key, { ...data, items })
    }
    // An item that no list has may belong into one. One that was changed in place may have to leave, or to move.
    refresh(topic, found && change.op === 'changed' ? REORDER_MS : REFRESH_MS)
    for (const name of DERIVED[topic]) refresh(name)
  }

  const connect = () => {
    source = new EventSource(buildUrl('console/stream', { topics: topics.join(','), after: state.cursor }))
    const resumed = state.cursor !== ''
    source.onopen = () => {
      attempt = 0
      apply({ type: 'open', at: Date.now() })
      // A stream without a cursor starts now, so what changed before it opened is listed.
      if (!resumed) for (const name of [...topics, 'summary', 'stuck']) void queries.invalidateQueries({ queryKey: [name] })
    }
    source.onerror = () => {
      apply({ type: 'error' })
      if (source?.readyState !== EventSource.CLOSED || stopped) return
      source.close()
      retry = setTimeout(connect, RECONNECT_MS[Math.min(attempt++, RECONNECT_MS.length - 1)])
    }
    for (const topic of topics) source.addEventListener(topic, (event) => receive(topic, event))
    source.addEventListener('bookmark', (event: MessageEvent<string>) => {
      const { behind } = JSON.parse(event.data) as { behind?: string[] }
      apply({ type: 'event', at: Date.now(), cursor: event.lastEventId, behind: behind?.filter((t) => topics.includes(t as Topic)) })
    })
    source.addEventListener('reset', (event) => {
      apply({ type: 'event', at: Date.now(), cursor: event.lastEventId })
      const { topic } = JSON.parse(event.data) as { topic?: string }
      for (const name of topic ? [topic, ...(DERIVED[topic as Topic] ?? [])] : topics) void queries.invalidateQueries({ queryKey: [name] })
    })
  }

  // A connection that is open and silent is closed; a browser may not notice for minutes.
  const watchdog = setInterval(() => {
    if (state.phase !== 'live' || Date.now() - state.heard < SILENT_MS) return
    source?.close()
    apply({ type: 'error' })
    connect()
  }, 5000)

  // A browser may keep a page that was left, with its connection. A few of them use up all connections to the server.
  const leave = () => source?.close()
  const comeBack = (event: PageTransitionEvent) => event.persisted && connect()
  addEventListener('pagehide', leave)
  addEventListener('pageshow', comeBack)

  apply({ type: 'start' })
  connect()
  return () => {
    stopped = true
    removeEventListener('pagehide', leave)
    removeEventListener('pageshow', comeBack)
    source?.close()
    clearTimeout(retry)
    clearInterval(watchdog)
    apply({ type: 'stop' })
  }
}
