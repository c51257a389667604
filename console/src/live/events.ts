// The pure half of the live stream: what its events do to the connection's
// state and to the lists that the page holds.

export type Topic = 'clusters' | 'nodepools' | 'changes' | 'executions' | 'nodes' | 'sentinels'

export interface StreamState {
  /** idle: no topics. connecting: nothing was received yet. lost: it was live before. */
  phase: 'idle' | 'connecting' | 'live' | 'lost'
  /** When the page last heard from the server, in milliseconds; 0 is never. */
  heard: number
  /** When the page last knew everything, in milliseconds; 0 is never. */
  current: number
  /** The cursor after the last event. */
  cursor: string
  /** The topics that the server itself cannot follow now. */
  behind: string[]
  /** When they began to be behind, in milliseconds. It means nothing while there are none. */
  behindSince: number
}

export const IDLE: StreamState = { phase: 'idle', heard: 0, current: 0, cursor: '', behind: [], behindSince: 0 }

export type StreamInput =
  | { type: 'start' | 'stop' }
  | { type: 'open'; at: number }
  | { type: 'event'; at: number; cursor?: string; behind?: string[] }
  | { type: 'error' }

/** reduceStream returns the state after an input. A loss keeps the time and the cursor, so that the gap shows and the next connection resumes. */
export function reduceStream(state: StreamState, input: StreamInput): StreamState {
  switch (input.type) {
    case 'start':
      return { ...state, phase: 'connecting', current: 0, cursor: '', behind: [], behindSince: 0 }
    case 'stop':
      return { ...state, phase: 'idle', current: 0, cursor: '', behind: [], behindSince: 0 }
    case 'open':
      return { ...state, phase: 'live', heard: input.at }
    case 'event': {
      const behind = input.behind ?? state.behind
      return { phase: 'live', heard: input.at, current: behind.length === 0 ? input.at : state.current, cursor: input.cursor || state.cursor, behind, behindSince: state.behind.length > 0 ? state.behindSince : input.at }
    }
    case 'error':
      return { ...state, phase: state.phase === 'connecting' ? 'connecting' : 'lost' }
  }
}

/** A server that is silent for this long is taken for lost: it sends a bookmark every 5 seconds. */
export const SILENT_MS = 15_000

/** isLive is false after a loss, when the server has been silent for too long, and while it is itself behind. */
export function isLive(state: StreamState, now: number): boolean {
  return state.phase === 'live' && state.behind.length === 0 && now - state.heard < SILENT_MS
}

/** A source that ends a stream is followed again within this time, which is no loss. */
export const BEHIND_MS = 3000

/** findLoss returns what keeps the page from following, if it followed before: its connection, or the topics that the server cannot follow. */
export function findLoss(state: StreamState, now: number): 'connection' | string[] | undefined {
  if (state.phase === 'lost') return 'connection'
  const lost = state.phase === 'live' && state.behind.length > 0 && state.current > 0 && now - state.behindSince > BEHIND_MS
  return lost ? state.behind : undefined
}

export interface Change { op: 'changed' | 'removed'; host?: string; item: Record<string, unknown> }

/** keyOf identifies an item within its topic. */
export function keyOf(topic: Topic, change: Change): string {
  const { item, host } = change
  if (topic === 'executions' || topic === 'sentinels') return `${host ?? item.host ?? ''}/${String(item.namespace)}/${String(item.name)}`
  if (topic === 'nodes') return `${host ?? item.host ?? ''}/${String(item.name)}`
  return String(item.id)
}

/**
 * patchItems replaces or removes the item in place. It returns the same array
 * if the item is not in it. The position of a changed item stays until the next
 * listing, so that rows do not jump under the pointer.
 */
export function patchItems<T>(items: T[], topic: Topic, change: Change): T[] {
  const key = keyOf(topic, change)
  const at = items.findIndex((item) => keyOf(topic, { op: 'changed', item: item as Record<string, unknown> }) === key)
  if (at < 0) return items
  const copy = items.slice()
  if (change.op === 'removed') copy.splice(at, 1)
  else copy[at] = { ...items[at], ...change.item } as T
  return copy
}

/** createThrottle runs at once and then at most once per interval, the last call included. */
export function createThrottle(run: () => void, interval: number): () => void {
  let last = -Infinity
  let timer: ReturnType<typeof setTimeout> | undefined
  return () => {
    if (timer !== undefined) return
    const wait = Math.max(0, last + interval - Date.now())
    timer = setTimeout(() => {
      timer = undefined
      last = Date.now()
      run()
    }, wait)
  }
}
