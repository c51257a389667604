// Addresses of the fleet API. They stand apart from the client, so that a page can send its first
// requests before the client is loaded.
import type { paths } from './fleet.gen'

/** UrlParams are the parameters of a request that are part of its URL. */
export interface UrlParams {
  path?: Record<string, unknown>
  query?: Record<string, unknown>
}

/** getServerPath returns the path of the server below which the OpenAPI document has a path. */
export const getServerPath = (path: string): string => (path.startsWith('/changes') ? '/api' : '/api/hyperfleet/v1')

/** fillPath replaces the parameters of a path, such as {id}, by their escaped values. */
export const fillPath = (path: string, values: Record<string, unknown> = {}): string =>
  path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name])))

/**
 * formatQuery returns a query string without the question mark. It leaves out undefined and empty
 * values, and joins lists by commas.
 */
export function formatQuery(values: Record<string, unknown> = {}): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== '') query.set(name, String(value))
  }
  return query.toString()
}

/**
 * buildRequestUrl returns the URL to which the client sends a request.
 *
 * Use it for what the client does not do itself, such as an EventSource that watches a collection.
 *
 * @param baseUrl - Address of the server, as in FleetClientOptions.
 * @param path - Path of the OpenAPI document, with its parameters in braces.
 * @param params - Values of the parameters.
 */
export function buildRequestUrl(baseUrl: string, path: keyof paths, params: UrlParams = {}): string {
  const query = formatQuery(params.query)
  return baseUrl.replace(/\/+$/, '') + getServerPath(path) + fillPath(path, params.path) + (query && `?${query}`)
}
