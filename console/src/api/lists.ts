// What a list of clusters or node pools asks for. It stands apart from the queries, because the first
// script of the page asks for it before the libraries are there.
import type { QueryOf } from '@fleetloop/client'
import { viewPath } from '../lib/base'
import { type Params, parseParams, searchQuery } from '../lib/search'
import type { Kind } from './types'

export const PAGE = 100

export interface ListFilter { labels?: string; text?: string; phase?: string; order?: string; cluster?: string }

// The fields of a row, so that a page of 100 does not carry 100 specs.
const FIELDS = 'name,kind,labels,generation,created_time,ownerResource,status.phase,status.observed_generation,status.last_transition_time,status.shoot_status,status.sync_error'

/** readFilter returns the filter that the parameters of a view say. */
export function readFilter(params: Params): ListFilter {
  return { labels: params.labels ?? '', text: params.text ?? '', phase: params.phase, order: params.order ?? 'created_time desc', cluster: params.cluster }
}

/** listRequest returns the path and the parameters of a list. */
export const listRequest = (kind: Kind, { labels, text, phase, order, cluster = '' }: ListFilter, query: QueryOf<'/clusters'>) => [
  kind === 'nodepools' && cluster ? '/clusters/{parent}/nodepools' : `/${kind}` as const,
  { path: { parent: cluster }, query: { labels, search: searchQuery(text, phase), order, ...query } },
] as const

/** pageRequest returns the path and the parameters of a page. */
export const pageRequest = (kind: Kind, filter: ListFilter, page: number) => listRequest(kind, filter, { page, size: PAGE, fields: FIELDS })

/** firstList returns the list that the address of the page names, if it names one. */
export function firstList(): { kind: Kind; filter: ListFilter } | undefined {
  const kind = (['clusters', 'nodepools'] as const).find((k) => viewPath() === `/${k}`)
  return kind && { kind, filter: readFilter(parseParams(location.search)) }
}
