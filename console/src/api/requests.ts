// Requests to the console server. It keeps the token; the page has a cookie
// that scripts cannot read, and proves with the CSRF header that it is the page.
import { readAfterWrites } from '@fleetloop/client'
import { BASE, currentPath } from '../lib/base'
import type { Session } from './types'

let csrf = ''

/** rememberSession keeps the CSRF token of the session for later writes. */
export function rememberSession(session: Session): Session {
  csrf = session.csrf ?? ''
  return session
}

export type Query = Record<string, string | number | boolean | undefined>

/** buildUrl resolves a path below the base path, without empty parameters. */
export function buildUrl(path: string, query: Query = {}): string {
  const url = new URL(path, BASE)
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') url.searchParams.set(name, String(value))
  }
  return url.toString()
}

// A view that was asked for early includes the writes of the page, too.
const fetchAfterWrites = readAfterWrites((request) => fetch(request))

// The answers that were asked for before their view was there, by address.
const early = new Map<string, Promise<Response>>()
const EARLY_MS = 10_000

/** requestEarly asks for what a view is about to get. The answer counts once, and not for long. */
export function requestEarly(url: string): void {
  const request = new Request(url, { headers: { Accept: 'application/json' } })
  const answer = fetchAfterWrites(request)
  const forget = () => void (early.get(request.url) === answer && early.delete(request.url))
  early.set(request.url, answer)
  // The view asks again for what failed, and shows why.
  answer.then((response) => response.ok || forget(), forget)
  setTimeout(forget, EARLY_MS)
}

/** sendToConsole sends a request with what the console server wants to know of the page. */
export function sendToConsole(request: Request): Promise<Response> {
  if (request.method === 'GET') {
    const answer = early.get(request.url)
    early.delete(request.url)
    if (answer) return answer
  } else {
    request.headers.set('X-Csrf-Token', csrf)
    request.headers.set('X-Console-View', currentPath())
  }
  return fetchAfterWrites(request)
}
