// The client of the fleet API, to which the console server forwards, and the requests of the console server itself.
import { createFleetClient, sendRequest } from '@fleetloop/client'
import { BASE, currentPath } from '../lib/base'
import { buildUrl, type Query, sendToConsole } from './requests'

export const fleet = createFleetClient({ baseUrl: BASE, fetch: sendToConsole })

async function send(path: string, query?: Query, init: RequestInit = {}): Promise<Response> {
  return sendRequest(new Request(buildUrl(path, query), { ...init, headers: { Accept: 'application/json', ...init.headers } }), sendToConsole)
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, query, { signal })).json()) as T
}

export async function write<T>(method: 'POST' | 'DELETE', path: string, body?: object): Promise<T> {
  // The console tells in the timeline from which view a person acted.
  const sent = path.startsWith('console/hosts/') ? { ...body, view: currentPath() } : body
  const response = await send(path, {}, { method, ...(sent && { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(sent) }) })
  const text = await response.text()
  return (text ? JSON.parse(text) : undefined) as T
}

/** readText calls onText with each piece of a text stream until it ends. */
export async function readText(path: string, query: Query, onText: (text: string) => void, signal: AbortSignal): Promise<void> {
  const response = await send(path, query, { signal, headers: { Accept: 'text/plain' } })
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  for (;;) {
    const piece = await reader?.read()
    if (!piece || piece.done) return
    onText(piece.value)
  }
}
