import { createFleetClient, FleetError, buildRequestUrl, type FleetClientOptions } from '@fleetloop/client'
import { fillPath, formatQuery, getServerPath } from '@fleetloop/client/url'
import { readFileSync } from 'node:fs'
import { describe, expect, test, vi } from 'vitest'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')
const json = (body: unknown, init?: ResponseInit) => new Response(JSON.stringify(body), init)

// newClient returns a client whose server gives the answers one after another, and the requests that it received.
function newClient(answers: (Response | Error)[], options: Partial<FleetClientOptions> = {}) {
  const requests: Request[] = []
  const fleet = createFleetClient({
    baseUrl: 'https://fleet.example.com',
    fetch: async (request) => {
      requests.push(request)
      const answer = answers.shift() ?? json({})
      if (answer instanceof Error) throw answer
      return answer
    },
    ...options,
  })
  return { fleet, requests, urls: () => requests.map((r) => `${r.method} ${r.url.replace('https://fleet.example.com', '')}`) }
}

// The function holds the example of the client's documentation.
async function runExample(token: string, id: string) {
  const fleet = createFleetClient({ baseUrl: 'https://fleet.example.com', headers: { Authorization: `Bearer ${token}` } })

  for await (const cluster of fleet.list('/clusters', { params: { query: { labels: 'region=eu' } } })) {
    console.log(cluster.name, cluster.status.phase)
  }

  const path = { id }
  const { data: cluster, etag } = await fleet.GET('/clusters/{id}', { params: { path } })
  try {
    await fleet.PATCH('/clusters/{id}', {
      params: { path, header: { 'If-Match': etag } },
      body: { labels: { ...cluster.labels, tier: 'gold' } },
    })
  } catch (err) {
    if (!(err instanceof FleetError && err.code === 'precondition_failed')) throw err
    console.log('another client has changed the cluster')
  }
}

describe('the example of the documentation', () => {
  test('it is the one that is compiled here', () => {
    const [, documented = ''] = /```ts\n([\s\S]*?) \* ```/.exec(read('client/typescript/index.ts')) ?? []
    const example = documented.replace(/^ \* ?/gm, '')
    const [, compiled = ''] = /async function runExample.*\n([\s\S]*?)\n}/.exec(read('console/test/client.test.ts')) ?? []
    expect(example.trim()).toBe(compiled.replace(/^ {2}/gm, '').trim())
    expect(example).toContain('PATCH')
  })

  test('it edits the version that it has read', async () => {
    const sent: Request[] = []
    const answers = [
      json({ items: [{ name: 'web', status: { phase: 'Ready' } }], size: 1 }),
      json({ labels: { region: 'eu' } }, { headers: { ETag: '"7"' } }),
      json({ type: 'about:blank', title: 'Precondition Failed', status: 412, code: 'precondition_failed' }, { status: 412 }),
    ]
    vi.stubGlobal('fetch', async (request: Request) => (sent.push(request), answers.shift()))
    const log = vi.spyOn(console, 'log').mockImplementation(() => {})
    await runExample('secret', '1')
    expect(log.mock.calls).toEqual([['web', 'Ready'], ['another client has changed the cluster']])
    expect(sent.map((r) => r.headers.get('Authorization'))).toEqual(Array(3).fill('Bearer secret'))
    expect(sent[2]?.headers.get('If-Match')).toBe('"7"')
    expect(await sent[2]?.json()).toEqual({ labels: { region: 'eu', tier: 'gold' } })
    vi.unstubAllGlobals()
    log.mockRestore()
  })
})

describe('reads after writes', () => {
  const answerOf = (token: string) => json({}, { headers: { 'Fleetloop-Read-After': token } })
  const create = { body: {} as never }
  test('a read has the token of the latest write, for two minutes', async () => {
    vi.useFakeTimers()
    const { fleet, requests } = newClient([json({}), answerOf('2'), answerOf('1'), json({}), json({}), json({})])
    await fleet.GET('/clusters')
    await fleet.POST('/clusters', create)
    await fleet.POST('/clusters', create) // its answer was overtaken
    await fleet.GET('/clusters')
    vi.advanceTimersByTime(119_999)
    await fleet.GET('/clusters')
    vi.advanceTimersByTime(1)
    await fleet.GET('/clusters')
    expect(requests.map((r) => r.headers.get('Fleetloop-Read-After'))).toEqual([null, null, null, '2', '2', null])
    vi.useRealTimers()
  })
})

describe('addresses', () => {
  test('each path has its server of the document', () => {
    const document = JSON.parse(read('api/fleet/v1/openapi.json')) as { servers: { url: string }[]; paths: Record<string, { servers?: { url: string }[] }> }
    for (const [path, item] of Object.entries(document.paths)) expect([path, getServerPath(path)]).toEqual([path, (item.servers ?? document.servers)[0]?.url])
  })
  test('the client sends requests where buildRequestUrl says', async () => {
    const { fleet, requests } = newClient([], { baseUrl: 'https://fleet.example.com/base/' })
    const params = { path: { id: 'a/b c' }, query: { limit: 5, continue: '' } }
    await fleet.GET('/clusters/{id}/revisions', { params })
    expect(requests[0]?.url).toBe('https://fleet.example.com/base/api/hyperfleet/v1/clusters/a%2Fb%20c/revisions?limit=5')
    expect(buildRequestUrl('https://fleet.example.com/base/', '/clusters/{id}/revisions', params)).toBe(requests[0]?.url)
  })
  test('values are escaped', () => {
    expect(fillPath('/changes/{id}/resend', { id: 'c/1?' })).toBe('/changes/c%2F1%3F/resend')
    expect(formatQuery({ state: ['stuck', 'paused'], search: "name = 'a&b'", page: 1, strict: false, text: undefined })).toBe('state=stuck%2Cpaused&search=name+%3D+%27a%26b%27&page=1&strict=false')
  })
})

describe('lists', () => {
  test('they follow the pages', async () => {
    const { fleet, urls } = newClient([json({ items: [{ name: 'a' }, { name: 'b' }], size: 2, continue: 'x y' }), json({ items: [{ name: 'c' }], size: 1 })])
    const names: string[] = []
    for await (const cluster of fleet.list('/clusters', { params: { query: { search: 'a', limit: undefined } } })) names.push(cluster.name)
    expect(names).toEqual(['a', 'b', 'c'])
    expect(urls()).toEqual(['GET /api/hyperfleet/v1/clusters?search=a&limit=100', 'GET /api/hyperfleet/v1/clusters?search=a&limit=100&continue=x+y'])
  })
  test('a loop that ends early requests no more', async () => {
    const { fleet, urls } = newClient([json({ items: [{}, {}], continue: 'x', cursor: 'c' })])
    for await (const _ of fleet.list('/changes', { params: { query: { limit: 2 } } })) break
    expect(urls()).toEqual(['GET /api/changes?limit=2'])
  })
  test('a server that repeats a page is an error', async () => {
    const { fleet } = newClient([json({ items: [], continue: 'x' }), json({ items: [], continue: 'x' })])
    await expect(fleet.list('/stuck').next()).rejects.toThrow('the same page again')
  })
})

describe('bodies', () => {
  test('an action without a body has none', async () => {
    const { fleet, requests } = newClient([json({})])
    await fleet.POST('/clusters/{id}/sync/retry', { params: { path: { id: '1' } } })
    expect([requests[0]?.body, requests[0]?.headers.get('Content-Type')]).toEqual([null, null])
  })
  test('a load is sent as lines', async () => {
    const { fleet, requests } = newClient([json({ created: 2, skipped: 0 })])
    const { data } = await fleet.POST('/clusters/bulk', { body: '{"name":"a"}\n{"name":"b"}\n', headers: { 'X-Extra': '1' } })
    expect(data.created).toBe(2)
    expect(requests[0]?.headers.get('Content-Type')).toBe('application/x-ndjson')
    expect(requests[0]?.headers.get('X-Extra')).toBe('1')
    expect(await requests[0]?.text()).toBe('{"name":"a"}\n{"name":"b"}\n')
  })
  test('a response without a body is undefined', async () => {
    const { fleet } = newClient([new Response(null, { status: 204 })])
    const report = { adapter: 'dns', observed_generation: 1, conditions: [] }
    expect((await fleet.PUT('/clusters/{id}/statuses', { params: { path: { id: '1' } }, body: report })).data).toBeUndefined()
  })
})

describe('errors', () => {
  const failure = async (answer: Response | Error, signal?: AbortSignal) => newClient([answer]).fleet.GET('/summary', { signal }).then(() => undefined, (err: unknown) => err)

  test('a problem of the API', async () => {
    const problem = { type: 'about:blank', title: 'Bad Request', status: 400, code: 'invalid_fields', detail: 'name is too long', errors: [{ field: 'name', message: 'is too long' }] }
    const err = await failure(json(problem, { status: 400 }))
    expect(err).toBeInstanceOf(FleetError)
    expect(err).toMatchObject({ message: 'Bad Request', status: 400, code: 'invalid_fields', detail: 'name is too long', hint: '', problem })
  })
  test('a hint of the console server', async () => {
    expect(await failure(json({ title: 'Bad Gateway', hint: 'Start it.' }, { status: 502 }))).toMatchObject({ status: 502, code: '', hint: 'Start it.' })
  })
  test('an answer that is no problem', async () => {
    for (const body of ['<html>', 'null', '']) {
      expect(await failure(new Response(body, { status: 503 }))).toMatchObject({ message: 'HTTP 503', status: 503, code: '', detail: '' })
    }
  })
  test('a server that is away', async () => {
    const cause = new TypeError('fetch failed')
    expect(await failure(cause)).toMatchObject({ name: 'FleetError', status: 0, message: 'unreachable', cause })
  })
  test('a cancelled request is not unreachable', async () => {
    const reason = new DOMException('stop', 'AbortError')
    expect(await failure(reason, AbortSignal.abort(reason))).toBe(reason)
  })
})

test('the client and the console have the same openapi-fetch', () => {
  const pinned = (path: string) => (JSON.parse(read(path)) as { dependencies: Record<string, string> }).dependencies['openapi-fetch']
  expect(pinned('client/typescript/package.json')).toBe(pinned('console/package.json'))
})

// What the compiler must reject. Each line is an error that "npm run check" expects.
export function rejectMistakes() {
  const { fleet } = newClient([])
  return [
    // @ts-expect-error an unknown path
    () => fleet.GET('/cluster'),
    // @ts-expect-error a path without the method
    () => fleet.DELETE('/summary'),
    // @ts-expect-error a missing parameter
    () => fleet.GET('/clusters/{id}'),
    // @ts-expect-error an unknown query parameter beside a known one
    () => fleet.GET('/clusters', { params: { query: { labels: 'a=b', serach: 'x' } } }),
    // @ts-expect-error an unknown value
    () => fleet.GET('/changes', { params: { query: { outcome: 'broken' } } }),
    // @ts-expect-error a missing body
    () => fleet.POST('/clusters/sync/retry'),
    // @ts-expect-error a list without pages
    () => fleet.list('/summary'),
    // @ts-expect-error a field that no cluster has
    async () => (await fleet.GET('/clusters/{id}', { params: { path: { id: '1' } } })).data.phase,
    // With a cursor the answer has the removed ids, without one it has the items only.
    async () => (await fleet.GET('/clusters', { params: { query: { changed_since: 'c' } } })).data.removed,
    // @ts-expect-error changes need a cursor
    async () => (await fleet.GET('/clusters', { params: { query: { limit: 1 } } })).data.removed,
    // @ts-expect-error an answer that may be empty
    async () => (await fleet.PUT('/clusters/{id}/statuses', { params: { path: { id: '1' } }, body: { adapter: 'a', observed_generation: 1, conditions: [] } })).data.adapter,
  ]
}
