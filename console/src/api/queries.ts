// What the views ask for. The first part of each key is the topic of the stream
// that renews the answer.
import { queryOptions } from '@tanstack/react-query'
import { CHANGES, FLEET, get, getWithEtag, type Query, rememberSession } from './client'
import { type ListFilter, pageRequest } from './lists'
import { type RawCoverage, type RawExecution, type RawNode, readCoverage, readExecution, readNode } from './hosts'
import type {
  AdapterStatus, AuditEvent, Buckets, ChangeDeliveries, ChangeEvent, ClusterSync, Decision, EmergencyStop, Kind,
  NodeList, Page, Permission, Resource, Revision, SentinelList, Session, StuckItem, Summary, UndeliveredChanges,
} from './types'

export const sessionQuery = queryOptions({
  queryKey: ['session'],
  queryFn: async ({ signal }) => rememberSession(await get<Session>('console/session', {}, signal)),
  staleTime: 5 * 60_000,
})

export const summaryQuery = queryOptions({
  queryKey: ['summary'],
  queryFn: ({ signal }) => get<Summary>(`${FLEET}summary`, {}, signal),
  refetchInterval: 5000,
})

/** nowQuery keeps the counts of the first view at most two seconds old. Those of the fleet API are up to one second old. */
export const nowQuery = queryOptions({ ...summaryQuery, staleTime: 0, refetchInterval: 500 })

export const pageQuery = (kind: Kind, filter: ListFilter, page: number) => queryOptions({
  queryKey: [kind, 'list', filter, page],
  queryFn: ({ signal }) => get<Page<Resource>>(...pageRequest(kind, filter, page), signal),
  gcTime: 60_000,
})

export const resourceQuery = (kind: Kind, id: string) => queryOptions({
  queryKey: [kind, 'one', id],
  queryFn: ({ signal }) => getWithEtag<Resource>(`${FLEET}${kind}/${id}`, signal),
})

export const statusesQuery = (kind: Kind, id: string) => queryOptions({
  queryKey: [kind, 'one', id, 'statuses'],
  queryFn: ({ signal }) => get<Page<AdapterStatus>>(`${FLEET}${kind}/${id}/statuses`, { size: 500 }, signal),
  refetchInterval: 15_000,
})

export const syncQuery = (id: string) => queryOptions({
  queryKey: ['clusters', 'one', id, 'sync'],
  queryFn: ({ signal }) => get<ClusterSync>(`${FLEET}clusters/${id}/sync`, {}, signal),
  refetchInterval: 15_000,
})

export const revisionsQuery = (kind: Kind, id: string) => queryOptions({
  queryKey: [kind, 'one', id, 'revisions'],
  queryFn: ({ signal }) => get<Page<Revision>>(`${FLEET}${kind}/${id}/revisions`, { limit: 50 }, signal),
})

export const canQuery = (verb: 'patch' | 'pause', resource: Kind, name?: string) => queryOptions({
  queryKey: ['can', verb, resource, name],
  queryFn: ({ signal }) => get<Permission>(`${FLEET}can-i`, { verb, resource, name }, signal),
  staleTime: 30_000,
})

export const stuckQuery = (filter: Query) => queryOptions({
  queryKey: ['stuck', filter],
  queryFn: ({ signal }) => get<Page<StuckItem>>(`${FLEET}stuck`, { limit: 200, ...filter }, signal),
  refetchInterval: 10_000,
})

export const syncsQuery = (state: string) => queryOptions({
  queryKey: ['stuck', 'syncs', state],
  queryFn: ({ signal }) => get<Page<ClusterSync>>(`${FLEET}clusters/sync`, { state, limit: 200 }, signal),
  refetchInterval: 10_000,
})

/** coverageQuery checks every resource. It costs a read of the fleet, so it runs on request only. */
export const coverageQuery = queryOptions({
  queryKey: ['coverage'],
  queryFn: async ({ signal }) => readCoverage(await get<RawCoverage>('console/coverage', {}, signal)),
  enabled: false,
  retry: false,
})

export const changesQuery = (filter: Query) => queryOptions({
  queryKey: ['changes', 'list', filter],
  queryFn: ({ signal }) => get<Page<ChangeEvent>>(CHANGES, filter, signal),
  gcTime: 60_000,
})

export const changePath = (id: string) => `${CHANGES}/${encodeURIComponent(id)}`

export const deliveriesQuery = (id: string) => queryOptions({
  queryKey: ['deliveries', id],
  queryFn: ({ signal }) => get<ChangeDeliveries>(`${changePath(id)}/deliveries`, {}, signal),
  refetchInterval: (query) => (query.state.data?.items.some((d) => d.state === 'pending') ? 5000 : false),
  gcTime: 60_000,
})

export const undeliveredQuery = queryOptions({
  queryKey: ['undelivered'],
  queryFn: ({ signal }) => get<UndeliveredChanges>(`${CHANGES}/undelivered`, {}, signal),
  refetchInterval: 10_000,
})

export const bucketsQuery = (filter: Query) => queryOptions({
  queryKey: ['buckets', filter],
  queryFn: ({ signal }) => get<Buckets>(`${CHANGES}/buckets`, filter, signal),
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
