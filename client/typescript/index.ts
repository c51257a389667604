/**
 * A client of the fleet API. Its types are generated from the OpenAPI document.
 *
 * ```ts
 * const fleet = createFleetClient({ baseUrl: 'https://fleet.example.com', headers: { Authorization: `Bearer ${token}` } })
 *
 * for await (const cluster of fleet.list('/clusters', { params: { query: { labels: 'region=eu' } } })) {
 *   console.log(cluster.name, cluster.status.phase)
 * }
 *
 * const path = { id }
 * const { data: cluster, etag } = await fleet.GET('/clusters/{id}', { params: { path } })
 * try {
 *   await fleet.PATCH('/clusters/{id}', {
 *     params: { path, header: { 'If-Match': etag } },
 *     body: { labels: { ...cluster.labels, tier: 'gold' } },
 *   })
 * } catch (err) {
 *   if (!(err instanceof FleetError && err.code === 'precondition_failed')) throw err
 *   console.log('another client has changed the cluster')
 * }
 * ```
 *
 * A read includes the writes of the same client, also if the server reads from a standby of its database.
 * Requests are not retried, and have no timeout other than the signal that the caller passes.
 * Streams are left to EventSource: buildRequestUrl returns their address.
 *
 * @packageDocumentation
 */
import createClient, { type FetchOptions } from 'openapi-fetch'
import type { components, paths } from './fleet.gen'
import { fillPath, formatQuery, getServerPath } from './url'

export type { components, operations, paths } from './fleet.gen'
export { buildRequestUrl, type UrlParams } from './url'

/** Schemas are the types of requests and responses, by their names in the OpenAPI document. */
export type Schemas = components['schemas']

/** Method is an HTTP method that the fleet API has. */
export type Method = 'get' | 'post' | 'put' | 'patch' | 'delete'

/** PathWith is a path of the OpenAPI document that has the method. */
export type PathWith<M extends Method> = { [P in keyof paths]: paths[P] extends Record<M, object> ? P : never }[keyof paths]

/** QueryOf has the query parameters of a path's method. */
export type QueryOf<P extends PathWith<M>, M extends Method = 'get'> =
  paths[P][M] extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never

/** ListPath is a path whose lists come in pages with a token of the next page. */
export type ListPath = { [P in PathWith<'get'>]: 'continue' extends keyof QueryOf<P> ? P : never }[PathWith<'get'>]

/** RequestOptions are the parameters and the body of a request, additional headers, and a signal that cancels it. */
export type RequestOptions<P extends PathWith<M>, M extends Method> =
  Pick<FetchOptions<paths[P][M]>, 'params' | 'body' | 'signal'> & { headers?: Record<string, string> }

/** RequestArguments are the options of a request. They can be left out if none is required. */
// It infers the options first, because the compiler would otherwise decide before it knows the path.
export type RequestArguments<P extends PathWith<M>, M extends Method> =
  FetchOptions<paths[P][M]> extends infer All
    ? object extends All ? [options?: RequestOptions<P, M>] : [options: RequestOptions<P, M>]
    : never

type JsonOf<R> = R extends { content: { 'application/json': infer T } } ? T : R extends { content?: never } ? undefined : never

/** ResponseBody is the body of a successful response: undefined if there is none. */
export type ResponseBody<P extends PathWith<M>, M extends Method> =
  paths[P][M] extends { responses: infer R } ? Exclude<JsonOf<R[keyof R & (200 | 201 | 202 | 204)]>, Schemas['Changes']> : never

/** ItemOf is an item of a list. */
export type ItemOf<P extends ListPath> = ResponseBody<P, 'get'> extends { items: (infer T)[] } ? T : never

/** FleetResponse is a successful response. */
export interface FleetResponse<T> {
  /** The decoded body. */
  data: T
  /** The version of the resource, for the header If-Match of an edit; empty if the server sent none. */
  etag: string
  /** The response itself, whose body has been read. */
  response: Response
}

/** FleetClient sends requests to the fleet API. Its methods throw a FleetError for any response other than a success. */
export interface FleetClient {
  /** GET reads the changes of a collection since a cursor. */
  GET<P extends PathWith<'get'>>(
    path: P,
    options: RequestOptions<P, 'get'> & { params: { query: { changed_since: string } } },
  ): Promise<FleetResponse<Schemas['Changes']>>
  /** GET reads a resource, or one page of a list. */
  GET<P extends PathWith<'get'>>(path: P, ...options: RequestArguments<P, 'get'>): Promise<FleetResponse<ResponseBody<P, 'get'>>>
  /** POST creates a resource, or starts an action. A body that is a string is sent as lines of JSON. */
  POST<P extends PathWith<'post'>>(path: P, ...options: RequestArguments<P, 'post'>): Promise<FleetResponse<ResponseBody<P, 'post'>>>
  /** PUT replaces a status report or a schema. */
  PUT<P extends PathWith<'put'>>(path: P, ...options: RequestArguments<P, 'put'>): Promise<FleetResponse<ResponseBody<P, 'put'>>>
  /** PATCH changes a resource; with the header If-Match, only if it still has that ETag. */
  PATCH<P extends PathWith<'patch'>>(path: P, ...options: RequestArguments<P, 'patch'>): Promise<FleetResponse<ResponseBody<P, 'patch'>>>
  /** DELETE requests a deletion. */
  DELETE<P extends PathWith<'delete'>>(path: P, ...options: RequestArguments<P, 'delete'>): Promise<FleetResponse<ResponseBody<P, 'delete'>>>
  /** list yields the items of all pages. It requests 100 items at a time unless the query has another limit. */
  list<P extends ListPath>(path: P, ...options: RequestArguments<P, 'get'>): AsyncGenerator<ItemOf<P>, void, undefined>
}

/** FleetClientOptions configure a client. */
export interface FleetClientOptions {
  /** Address of the server, without the path of the API. */
  baseUrl: string
  /** Sends the requests, and can change them before; by default the global fetch. */
  fetch?: (request: Request) => Promise<Response>
  /** Headers of every request, for example Authorization. */
  headers?: Record<string, string>
}

/** Problem is the body of an unsuccessful response, RFC 9457. */
export type Problem = Schemas['Problem'] & {
  /** What a person can do about the error. The console server sends it, the fleet API does not. */
  hint?: string
}

/** FleetError is an unsuccessful response, or the lack of one. Its message is the title of the problem. */
export class FleetError extends Error {
  override readonly name = 'FleetError'
  /** HTTP status; 0 if no response arrived. */
  readonly status: number
  /** Code of the problem; empty if the response has none, for example that of a proxy. */
  readonly code: Problem['code'] | ''
  /** Explanation of this error; empty if the response has none. */
  readonly detail: string
  /** What a person can do about the error; empty if the response does not say it. */
  readonly hint: string
  /** The problem as the server sent it, for example with the invalid fields. */
  readonly problem: Partial<Problem>

  constructor(status: number, problem: Partial<Problem>, options?: ErrorOptions) {
    super(problem.title ?? `HTTP ${status}`, options)
    this.status = status
    this.code = problem.code ?? ''
    this.detail = problem.detail ?? ''
    this.hint = problem.hint ?? ''
    this.problem = problem
  }
}

/**
 * sendRequest returns a successful response, and throws a FleetError for any other. A cancelled
 * request fails with the reason of its signal.
 */
export async function sendRequest(request: Request, send: (request: Request) => Promise<Response> = fetch): Promise<Response> {
  let response: Response
  try {
    response = await send(request)
  } catch (cause) {
    if (request.signal.aborted) throw cause
    throw new FleetError(0, { title: 'unreachable' }, { cause })
  }
  if (response.ok) return response
  throw new FleetError(response.status, (await response.json().catch(() => null) ?? {}) as Partial<Problem>)
}

const READ_AFTER = 'Fleetloop-Read-After'
/** How long a read needs the token of a write. By then every standby that the server uses has the write. */
const READ_AFTER_MS = 120_000

/**
 * readAfterWrites returns a function that sends requests so that a read includes the earlier writes, also if
 * the fleet API reads from a standby of its database. A client does that by itself.
 */
export function readAfterWrites(send: (request: Request) => Promise<Response>): (request: Request) => Promise<Response> {
  let written = { token: '', until: 0 }
  return async (request) => {
    if (request.method === 'GET') {
      if (Date.now() < written.until) request.headers.set(READ_AFTER, written.token)
      return send(request)
    }
    const response = await send(request)
    const token = response.headers.get(READ_AFTER) ?? ''
    if (token) {
      const isOvertaken = Date.now() < written.until && written.token > token
      written = { token: isOvertaken ? written.token : token, until: Date.now() + READ_AFTER_MS }
    }
    return response
  }
}

interface Page { items: unknown[]; continue?: string }

/** createFleetClient returns a client of the fleet API. */
export function createFleetClient({ baseUrl, fetch, headers }: FleetClientOptions): FleetClient {
  const root = baseUrl.replace(/\/+$/, '')
  const send = readAfterWrites(fetch ?? ((request) => globalThis.fetch(request)))
  const client = createClient<paths>({
    fetch: (request) => sendRequest(request, send),
    headers: { Accept: 'application/json', ...headers },
    pathSerializer: fillPath,
    querySerializer: formatQuery,
    bodySerializer: (body: unknown) => (typeof body === 'string' ? body : JSON.stringify(body)),
  })

  const method = (name: Method) => async (path: string, options: RequestOptions<'/clusters', 'get'> & { body?: unknown } = {}) => {
    const lines = typeof options.body === 'string' ? { 'Content-Type': 'application/x-ndjson' } : {}
    const { data, response } = await client.request(name, path as never, {
      ...options, baseUrl: root + getServerPath(path), headers: { ...lines, ...options.headers },
    } as never) as { data?: unknown; response: Response }
    return { data, response, etag: response.headers.get('ETag') ?? '' }
  }
  const GET = method('get')

  async function* list(path: string, options: RequestOptions<'/clusters', 'get'> = {}) {
    const query = { ...options.params?.query, limit: options.params?.query?.limit ?? 100 }
    for (;;) {
      const page = (await GET(path, { ...options, params: { ...options.params, query } })).data as Page
      yield* page.items
      if (!page.continue) return
      if (page.continue === query.continue) throw new Error(`list ${path}: the server returned the same page again`)
      query.continue = page.continue
    }
  }

  return { GET, POST: method('post'), PUT: method('put'), PATCH: method('patch'), DELETE: method('delete'), list } as unknown as FleetClient
}
