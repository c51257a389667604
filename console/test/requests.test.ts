import { QueryClient, QueryObserver } from '@tanstack/react-query'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import type { Schemas } from '../src/api/types'

// Without a window the library takes itself to be on a server, and repeats nothing.
vi.hoisted(() => Object.assign(globalThis, { window: globalThis }))

// The modules read the address of the page when they are loaded.
const openAt = (path: string) => {
  vi.stubGlobal('document', { querySelector: () => null })
  vi.stubGlobal('location', new URL(path, 'https://console.example'))
  vi.resetModules()
}
const answer = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status })

beforeEach(() => void vi.useFakeTimers())
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

describe('the counts of the first view', () => {
  test('they are at most two seconds old', async () => {
    openAt('/')
    const { nowQuery } = await import('../src/api/queries')
    // The fleet API's counts may be a second old when it reads them, and the answer takes a moment.
    vi.stubGlobal('fetch', async () => {
      const asOf = new Date(Date.now() - 1000).toISOString()
      await new Promise((resolve) => setTimeout(resolve, 200))
      return answer({ as_of: asOf })
    })
    const shown = new QueryObserver<Schemas['Summary']>(new QueryClient(), nowQuery as never)
    const close = shown.subscribe(() => {})
    let oldest = 0
    for (let ms = 0; ms < 20_000; ms += 10) {
      await vi.advanceTimersByTimeAsync(10)
      const { data } = shown.getCurrentResult()
      if (data) oldest = Math.max(oldest, Date.now() - Date.parse(data.as_of))
    }
    close()
    expect(oldest).toBeGreaterThan(1000)
    expect(oldest).toBeLessThanOrEqual(2000)
  })
})

describe('a read after a write', () => {
  const openWith = async (...tokens: string[]) => {
    openAt('/')
    const sent: (string | null)[] = []
    vi.stubGlobal('fetch', (request: Request) => {
      if (request.method === 'GET') sent.push(request.headers.get('Fleetloop-Read-After'))
      const token = request.method === 'GET' ? '' : tokens.shift()
      return Promise.resolve(new Response('{}', token ? { headers: { 'Fleetloop-Read-After': token } } : {}))
    })
    const { sendToConsole } = await import('../src/api/requests')
    const send = (method: string) => sendToConsole(new Request('https://console.example/api/x', { method }))
    return { sent, send }
  }

  test('it has the latest token for two minutes', async () => {
    const { sent, send } = await openWith('A1', 'A2', 'A1')
    await send('GET')
    for (let n = 0; n < 3; n++) await send('POST')
    await send('GET')
    await vi.advanceTimersByTimeAsync(121_000)
    await send('GET')
    expect(sent).toEqual([null, 'A2', null])
  })
})

describe('a request before its view is there', () => {
  const open = async (...answers: (Response | Error)[]) => {
    openAt('/clusters?labels=region%3Deu')
    const asked: string[] = []
    vi.stubGlobal('fetch', (request: Request) => {
      asked.push(request.url)
      const next = answers.shift() ?? answer({ n: asked.length })
      return next instanceof Error ? Promise.reject(next) : Promise.resolve(next)
    })
    return { asked, ...(await import('../src/api/client')), ...(await import('../src/api/lists')), ...(await import('../src/api/requests')), ...(await import('../../client/typescript/url')) }
  }

  test('its answer counts once', async () => {
    const { asked, requestEarly, buildUrl, get } = await open()
    requestEarly(buildUrl('api/x', { a: 1 }))
    expect(await get('api/x', { a: 1 })).toEqual({ n: 1 })
    expect(asked).toHaveLength(1)
    expect(await get('api/x', { a: 1 })).toEqual({ n: 2 })
  })
  test('its answer does not count for another request', async () => {
    const { requestEarly, buildUrl, get } = await open()
    requestEarly(buildUrl('api/x', { a: 1 }))
    expect(await get('api/x', { a: 2 })).toEqual({ n: 2 })
  })
  test('its answer does not count later', async () => {
    const { requestEarly, buildUrl, get } = await open()
    requestEarly(buildUrl('api/x'))
    await vi.advanceTimersByTimeAsync(10_000)
    expect(await get('api/x')).toEqual({ n: 2 })
  })
  test('the view repeats what failed', async () => {
    for (const failed of [answer({}, 401), new TypeError('unreachable')]) {
      const { requestEarly, buildUrl, get } = await open(failed)
      requestEarly(buildUrl('api/x'))
      await vi.advanceTimersByTimeAsync(1)
      expect(await get('api/x')).toEqual({ n: 2 })
    }
  })
  test('the first page of a list is what the view asks for', async () => {
    const { asked, requestEarly, buildRequestUrl, firstList, pageRequest } = await open()
    const { pageQuery } = await import('../src/api/queries')
    const list = firstList()!
    expect(list).toMatchObject({ kind: 'clusters', filter: { labels: 'region=eu', order: 'created_time desc' } })
    requestEarly(buildRequestUrl('https://console.example/', ...pageRequest(list.kind, list.filter, 1)))
    await new QueryClient().fetchQuery(pageQuery(list.kind, list.filter, 1))
    expect(asked).toHaveLength(1)
  })
  test('a page that is no list has none', async () => {
    openAt('/clusters/1')
    expect((await import('../src/api/lists')).firstList()).toBeUndefined()
  })
})
