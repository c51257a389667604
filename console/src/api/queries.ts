// What the views ask for. The first part of each key is the topic of the stream
// that renews the answer.
import { queryOptions } from '@tanstack/react-query'
import type { QueryOf } from '@fleetloop/client'
import { fleet, get } from './client'
import { type ListFilter, PAGE, pageRequest } from './lists'
import { type RawCoverage, type RawExecution, type RawNode, readCoverage, readExecution, readNode } from './hosts'
import { rememberSession } from './requests'
import type { AuditEvent, Decision, EmergencyStop, Kind, NodeList, Page, Resource, Schemas, SentinelList, Session, SyncState } from './types'

const readData = <T>({ data }: { data: T }): T => data

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: async ({ signal }) => rememberSession(await get<Session>('console/session', {}, signal)),
  staleTime: 5 * 60_000,
})

export const summaryQuery = queryOptions({
  queryKey: ['summary'],
  queryFn: ({ signal }) => fleet.GET('/summary', { signal }).then(readData),
  refetchInterval: 5000,
})

/** nowQuery keeps the counts of the first view at most two seconds old. Those of the fleet API are up to one second old. */
export const nowQuery = queryOptions({ ...summaryQuery, staleTime: 0, refetchInterval: 500 })

export const pageQuery = (kind: Kind, filter: ListFilter, page: number) => queryOptions({
  queryKey: [kind, 'list', filter, page],
  queryFn: async ({ signal }): Promise<Schemas['List'] & { items: Row[] }> => {
    const [path, params] = pageRequest(kind, filter, page)
    const { data } = await fleet.GET(path, { params, signal })
    if (kind === 'clusters') return data
    const names = await readClusterNames(data.items.flatMap((i) => i.ownerResource?.id ?? []), signal)
    return { ...data, items: data.items.map((i) => ({ ...i, clusterName: names.get(i.ownerResource?.id ?? '') })) }
  },
  gcTime: 60_000,
})

/** A Row is a resource in a list. A node pool's row has the name of its cluster. */
export type Row = Resource & { clusterName?: string }

// Without the names a list of node pools is still useful.
async function readClusterNames(ids: string[], signal: AbortSignal): Promise<Map<string, string>> {
  if (ids.length === 0) return new Map()
  const search = `id in (${[...new Set(ids)].map((id) => `'${id}'`).join(',')})`
  const found = await fleet.GET('/clusters', { params: { query: { search, fields: 'name', size: PAGE } }, signal }).then(readData, () => ({ items: [] }))
  return new Map(found.items.map((c) => [c.id, c.name]))
}

export const resourceQuery = (kind: Kind, id: string) => queryOptions({
  queryKey: [kind, 'one', id],
  queryFn: ({ signal }) => fleet.GET(`/${kind}/{id}`, { params: { path: { id } }, signal }).then(({ data, etag }) => ({ body: data, etag })),
})

export const statusesQuery = (kind: Kind, id: string) => queryOptions({
  queryKey: [kind, 'one', id, 'statuses'],
  queryFn: ({ signal }) => fleet.GET(`/${kind}/{id}/statuses`, { params: { path: { id }, query: { size: 500 } }, signal }).then(readData),
  refetchInterval: 15_000,
})

export const syncQuery = (id: string) => queryOptions({
  queryKey: ['clusters', 'one', id, 'sync'],
  queryFn: ({ signal }) => fleet.GET('/clusters/{id}/sync', { params: { path: { id } }, signal }).then(readData),
  refetchInterval: 15_000,
})

export const revisionsQuery = (kind: Kind, id: string) => queryOptions({
  queryKey: [kind, 'one', id, 'revisions'],
  queryFn: ({ signal }) => fleet.GET(`/${kind}/{id}/revisions`, { params: { path: { id }, query: { limit: 50 } }, signal }).then(readData),
})

export const canQuery = (verb: 'patch' | 'pause', resource: Kind, name?: string) => queryOptions({
  queryKey: ['can', verb, resource, name],
  queryFn: ({ signal }) => fleet.GET('/can-i', { params: { query: { verb, resource, name } }, signal }).then(readData),
  staleTime: 30_000,
})

export const stuckQuery = (query: QueryOf<'/stuck'>) => queryOptions({
  queryKey: ['stuck', query],
  queryFn: ({ signal }) => fleet.GET('/stuck', { params: { query: { limit: 200, ...query } }, signal }).then(readData),
  refetchInterval: 10_000,
})

export const syncsQuery = (state: SyncState[]) => queryOptions({
  queryKey: ['stuck', 'syncs', state],
  queryFn: ({ signal }) => fleet.GET('/clusters/sync', { params: { query: { state, limit: 200 } }, signal }).then(readData),
  refetchInterval: 10_000,
})

/** coverageQuery checks every resource. It costs a read of the fleet, so it runs on request only. */
export const coverageQuery = queryOptions({
  queryKey: ['coverage'],
  queryFn: async ({ signal }) => readCoverage(await get<RawCoverage>('console/coverage', {}, signal)),
  enabled: false,
  retry: false,
})

export const changesQuery = (query: QueryOf<'/changes'>) => queryOptions({
  queryKey: ['changes', 'list', query],
  queryFn: ({ signal }) => fleet.GET('/changes', { params: { query }, signal }).then(readData),
  gcTime: 60_000,
})

export const deliveriesQuery = (id: string) => queryOptions({
  queryKey: ['deliveries', id],
  queryFn: ({ signal }) => fleet.GET('/changes/{id}/deliveries', { params: { path: { id } }, signal }).then(readData),
  refetchInterval: (query) => (query.state.data?.items.some((d) => d.state === 'pending') ? 5000 : false),
  gcTime: 60_000,
})

export const undeliveredQuery = queryOptions({
  queryKey: ['undelivered'],
  queryFn: ({ signal }) => fleet.GET('/changes/undelivered', { signal }).then(readData),
  refetchInterval: 10_000,
})

export const bucketsQuery = (query: QueryOf<'/changes/buckets'>) => queryOptions({
  queryKey: ['buckets', query],
  queryFn: ({ signal }) => fleet.GET('/changes/buckets', { params: { query }, signal }).then(readData),
  gcTime: 60_000,
})

const hostPath = (host: string) => `console/hosts/${encodeURIComponent(host)}`
export const executionPath = (host: string, namespace: string, name: string) =>
  `${hostPath(host)}/executions/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`
export const stopPath = (host: string) => `${hostPath(host)}/stop`
export const nodePath = (host: string, name: string) => `${hostPath(host)}/nodes/${encodeURIComponent(name)}`

export const executionsQuery = (host: string) => queryOptions({
  queryKey: ['executions', 'list', host],
  queryFn: async ({ signal }) => {
    const page = await get<Page<RawExecution>>(`${hostPath(host)}/executions`, { limit: 500 }, signal)
    return { ...page, items: page.items.map(readExecution) }
  },
})

export const executionQuery = (host: string, namespace: string, name: string) => queryOptions({
  queryKey: ['executions', 'one', `${host}/${namespace}/${name}`],
  queryFn: async ({ signal }) => readExecution(await get<RawExecution>(executionPath(host, namespace, name), {}, signal)),
})

export const auditQuery = (host: string, namespace: string, name: string, phase: string) => queryOptions({
  queryKey: ['executions', 'audit', `${host}/${namespace}/${name}`, phase], // a phase adds events
  queryFn: ({ signal }) => get<Page<AuditEvent>>(`${executionPath(host, namespace, name)}/audit`, {}, signal),
  placeholderData: (previous) => previous,
})

export const stopQuery = (host: string) => queryOptions({
  queryKey: ['executions', 'stop', host],
  queryFn: ({ signal }) => get<EmergencyStop>(stopPath(host), {}, signal),
  retry: false,
})

export const nodesQuery = (host: string) => queryOptions({
  queryKey: ['nodes', 'list', host],
  queryFn: async ({ signal }) => {
    const list = await get<Omit<NodeList, 'items'> & { items: RawNode[] }>(`${hostPath(host)}/nodes`, {}, signal)
    return { ...list, items: list.items.map(readNode) }
  },
})

export const decisionsQuery = (host: string, collection: string, id: string, generation: number) => queryOptions({
  queryKey: ['sentinels', 'decisions', host, id, generation],
  queryFn: ({ signal }) => get<Page<Decision>>(`${hostPath(host)}/decisions`, { collection, id }, signal),
  placeholderData: (previous) => previous,
  refetchInterval: 10_000, // a resource falls due by time alone
})

export const sentinelsQuery = (host: string) => queryOptions({
  queryKey: ['sentinels', 'list', host],
  queryFn: ({ signal }) => get<SentinelList>(`${hostPath(host)}/sentinels`, {}, signal),
})
