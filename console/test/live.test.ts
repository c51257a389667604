import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { BEHIND_MS, createThrottle, findLoss, IDLE, isLive, keyOf, patchItems, reduceStream, SILENT_MS, type StreamInput } from '../src/live/events'

const run = (...inputs: StreamInput[]) => inputs.reduce(reduceStream, IDLE)

describe('the state of the stream', () => {
  test('it is live while the server speaks', () => {
    const state = run({ type: 'start' }, { type: 'open', at: 1000 }, { type: 'event', at: 2000, cursor: 'c7', behind: [] })
    expect(state).toEqual({ phase: 'live', heard: 2000, current: 2000, cursor: 'c7', behind: [], behindSince: 2000 })
    expect(isLive(state, 2000 + SILENT_MS - 1)).toBe(true)
    expect(isLive(state, 2000 + SILENT_MS)).toBe(false)
  })
  test('a loss keeps the time and the cursor, so that the gap shows and the stream resumes', () => {
    const state = run({ type: 'start' }, { type: 'open', at: 1000 }, { type: 'event', at: 2000, cursor: 'c7' }, { type: 'error' })
    expect(state).toEqual({ phase: 'lost', heard: 2000, current: 2000, cursor: 'c7', behind: [], behindSince: 2000 })
    expect(isLive(state, 2001)).toBe(false)
    expect(reduceStream(state, { type: 'open', at: 9000 })).toEqual({ phase: 'live', heard: 9000, current: 2000, cursor: 'c7', behind: [], behindSince: 2000 })
    expect(findLoss(state, 2001)).toBe('connection')
  })
  test('a server that is itself behind is not live', () => {
    const state = run({ type: 'start' }, { type: 'event', at: 1000, behind: ['clusters'] }, { type: 'event', at: 1100 })
    expect(isLive(state, 1200)).toBe(false)
    expect(isLive(reduceStream(state, { type: 'event', at: 1300, behind: [] }), 1300)).toBe(true)
  })
  test('a source that stays away is a loss, and the data is as old as the last word before', () => {
    const state = run({ type: 'start' }, { type: 'event', at: 1000, behind: [] }, { type: 'event', at: 2000, behind: ['clusters'] }, { type: 'event', at: 9000 })
    expect(state.current).toBe(1000)
    expect(findLoss(state, 2000 + BEHIND_MS)).toBeUndefined() // it may only begin anew
    expect(findLoss(state, 2001 + BEHIND_MS)).toEqual(['clusters'])
    expect(findLoss(run({ type: 'start' }, { type: 'event', at: 1000, behind: ['clusters'] }), 9000)).toBeUndefined() // the answers say it
  })
  test('a stream that is stopped has no age', () => expect(run({ type: 'start' }, { type: 'event', at: 1000, behind: [] }, { type: 'stop' } as StreamInput)).toMatchObject({ phase: 'idle', current: 0 }))
  test('other topics start without the old cursor', () => expect(run({ type: 'event', at: 1, cursor: 'c7' }, { type: 'start' }).cursor).toBe(''))
  test('a bookmark without an id keeps the cursor', () => expect(run({ type: 'event', at: 1, cursor: 'c7' }, { type: 'event', at: 2, cursor: '' }).cursor).toBe('c7'))
})

describe('items', () => {
  const items = [{ id: 'a', v: 1 }, { id: 'b', v: 2 }]
  test('a change is made in place and keeps what it does not name', () => expect(patchItems(items, 'clusters', { op: 'changed', item: { id: 'b', w: 3 } })).toEqual([{ id: 'a', v: 1 }, { id: 'b', v: 2, w: 3 }]))
  test('a removal', () => expect(patchItems(items, 'clusters', { op: 'removed', item: { id: 'a' } })).toEqual([{ id: 'b', v: 2 }]))
  test('an unknown item changes nothing', () => expect(patchItems(items, 'clusters', { op: 'changed', item: { id: 'z' } })).toBe(items))
  test('equal names on two hosts are two nodes', () => {
    const nodes = [{ host: 'x', name: 'n1', stage: 'held' }, { host: 'y', name: 'n1', stage: 'held' }]
    expect(patchItems(nodes, 'nodes', { op: 'changed', host: 'y', item: { name: 'n1', stage: 'back' } }).map((n) => n.stage)).toEqual(['held', 'back'])
    expect(keyOf('executions', { op: 'changed', host: 'x', item: { namespace: 'ns', name: 'e' } })).toBe('x/ns/e')
  })
})

describe('the throttle', () => {
  beforeEach(() => void vi.useFakeTimers())
  afterEach(() => void vi.useRealTimers())
  test('it runs at once, and the last call is not lost', () => {
    const calls: number[] = []
    const start = Date.now()
    const call = createThrottle(() => calls.push(Date.now() - start), 2000)
    call()
    vi.advanceTimersByTime(10)
    call()
    call()
    vi.advanceTimersByTime(5000)
    expect(calls).toEqual([0, 2000])
  })
})
