// Requests to the console server. It keeps the token; the page has a cookie
// that scripts cannot read, and proves with the CSRF header that it is the page.
import { BASE, currentPath } from '../lib/base'
import type { Session } from './types'

export class ApiError extends Error {
  readonly status: number
  readonly code: string
  readonly detail: string
  readonly hint: string

  constructor(status: number, problem: { title?: string; code?: string; detail?: string; hint?: string }) {
    super(problem.title ?? `HTTP ${status}`)
    this.status = status
    this.code = problem.code ?? ''
    this.detail = problem.detail ?? ''
    this.hint = problem.hint ?? ''
  }
}

export const FLEET = 'api/hyperfleet/v1/'
export const CHANGES = 'api/changes'

let csrf = ''

/** rememberSession keeps the CSRF token of the session for later writes. */
export function rememberSession(session: Session): Session {
  csrf = session.csrf ?? ''
  return session
}

export type Query = Record<string, string | number | boolean | undefined>

/** buildUrl resolves a path below the base path, without empty parameters. */
export function buildUrl(path: string, query: Query = {}, base: string = BASE): string {
  const url = new URL(path, base)
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') url.searchParams.set(name, String(value))
  }
  return url.toString()
}

// The answers that were asked for before their view was there, by address.
const early = new Map<string, Promise<Response>>()
const EARLY_MS = 10_000

/** requestEarly asks for what a view is about to get. The answer counts once, and not for long. */
export function requestEarly(path: string, query?: Query): void {
  const url = buildUrl(path, query)
  const answer = fetch(url, { headers: { Accept: 'application/json' }, credentials: 'same-origin' })
  const forget = () => void (early.get(url) === answer && early.delete(url))
  early.set(url, answer)
  // The view asks again for what failed, and shows why.
  answer.then((response) => response.ok || forget(), forget)
  setTimeout(forget, EARLY_MS)
}

function takeEarly(url: string): Promise<Response> | undefined {
  const answer = early.get(url)
  early.delete(url)
  return answer
}

async function send(method: string, path: string, init: RequestInit & { query?: Query } = {}): Promise<Response> {
  const headers = new Headers(init.headers)
  headers.set('Accept', headers.get('Accept') ?? 'application/json')
  if (method !== 'GET') {
    headers.set('X-Csrf-Token', csrf)
    headers.set('X-Console-View', currentPath())
  }
  const url = buildUrl(path, init.query)
  let response: Response
  try {
    response = await ((method === 'GET' && takeEarly(url)) || fetch(url, { ...init, method, headers, credentials: 'same-origin' }))
  } catch (err) {
    if (err instanceof DOMException && err.name === 'AbortError') throw err
    throw new ApiError(0, { title: 'unreachable' })
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}))
    throw new ApiError(response.status, problem as object)
  }
  return response
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const response = await send('GET', path, { query, signal })
  return (await response.json()) as T
}

/** getWithEtag returns the body and the version to send back in If-Match. */
export async function getWithEtag<T>(path: string, signal?: AbortSignal): Promise<{ body: T; etag: string }> {
  const response = await send('GET', path, { signal })
  return { body: (await response.json()) as T, etag: response.headers.get('ETag') ?? '' }
}

export async function write<T>(method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown, headers: HeadersInit = {}): Promise<T> {
  const all = new Headers(headers)
  // The console tells in the timeline from which view a person acted.
  const sent = path.startsWith('console/hosts/') ? { ...(body as object), view: currentPath() } : body
  if (sent !== undefined) all.set('Content-Type', 'application/json')
  const response = await send(method, path, { headers: all, body: sent === undefined ? undefined : JSON.stringify(sent) })
  const text = await response.text()
  return (text ? JSON.parse(text) : undefined) as T
}

/** readText calls onText with each piece of a text stream until it ends. */
export async function readText(path: string, query: Query, onText: (text: string) => void, signal: AbortSignal): Promise<void> {
  const response = await send('GET', path, { query, signal, headers: { Accept: 'text/plain' } })
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const piece = await reader?.read()
    if (!piece || piece.done) return
    onText(piece.value)
  }
}
