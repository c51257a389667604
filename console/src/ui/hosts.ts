// Lists of all host clusters that the console is connected to, as one.
import { type UseQueryOptions, useQueries, useQuery } from '@tanstack/react-query'
import { sessionQuery } from '../api/queries'
import type { Host } from '../api/types'

export function useHosts(): Host[] {
  return useQuery(sessionQuery).data?.hosts ?? []
}

export interface HostLists<D> {
  lists: { host: Host; data: D }[]
  failures: { host: Host; error: unknown; retry: () => void }[]
  pending: boolean
  /** The age of the oldest list. */
  asOf: number
}

export function useHostLists<D>(make: (host: string) => UseQueryOptions<D, Error, D, any>): HostLists<D> {
  const hosts = useHosts()
  const results = useQueries({ queries: hosts.map((host) => make(host.name)) })
  const out: HostLists<D> = { lists: [], failures: [], pending: false, asOf: 0 }
  hosts.forEach((host, i) => {
    const result = results[i]!
    if (result.data !== undefined) {
      out.lists.push({ host, data: result.data as D })
      out.asOf = out.asOf ? Math.min(out.asOf, result.dataUpdatedAt) : result.dataUpdatedAt
    } else if (result.error) out.failures.push({ host, error: result.error, retry: () => void result.refetch() })
    else out.pending = true
  })
  return out
}
