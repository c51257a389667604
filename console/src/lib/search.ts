// The state of a view is in its URL: every value a string, in a stable order.

export type Params = Record<string, string>

/** parseParams reads a query string; of a repeated name the last value counts. */
export function parseParams(query: string): Params {
  return Object.fromEntries(new URLSearchParams(query))
}

/** formatParams writes the parameters that have a value, sorted by name. */
export function formatParams(params: Record<string, unknown>): string {
  const search = new URLSearchParams()
  for (const name of Object.keys(params).sort()) {
    const value = params[name]
    if (value !== undefined && value !== null && value !== '') search.set(name, String(value))
  }
  const text = search.toString().replaceAll('%2C', ',').replaceAll('%3A', ':').replaceAll('%2F', '/')
  return text ? `?${text}` : ''
}

/** mergeParams changes some parameters; an empty value removes one. */
export function mergeParams(params: Params, change: Record<string, string | undefined>): Params {
  const merged = { ...params }
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined || value === '') delete merged[name]
    else merged[name] = value
  }
  return merged
}

/** searchQuery writes the API's search for a text in the name and a phase. */
export function searchQuery(text: string | undefined, phase: string | undefined): string {
  const quote = (s: string) => `'${s.replaceAll("'", "''")}'`
  const terms: string[] = []
  if (text) terms.push(`name like ${quote(`%${text}%`)}`)
  if (phase) {
    const names = phase.split(',').map(quote)
    terms.push(names.length === 1 ? `status.phase = ${names[0]}` : `status.phase in (${names.join(',')})`)
  }
  return terms.join(' and ')
}

/** toggleSelector adds key=value to a label selector, replaces the key's value, or removes it. */
export function toggleSelector(selector: string, key: string, value: string): string {
  const wanted = `${key}=${value}`
  const terms = selector.split(/,(?![^(]*\))/).map((t) => t.trim()).filter(Boolean)
  const others = terms.filter((t) => !new RegExp(`^${key.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}\\s*(=|!=|in\\b|notin\\b|$)`).test(t))
  return (terms.includes(wanted) ? others : [...others, wanted]).join(',')
}

/** localPath returns where to go after signing in: a path of this page, never another site. */
export function localPath(to: string | undefined): string {
  return to && /^\/(?![/\\])/.test(to) && !/[\\\s]/.test(to) ? to : '/'
}

/** literalPart returns the longest part of a normalised reason that its messages have as it stands. */
export function literalPart(reason: string): string {
  return reason.split(/<[a-z]+>|…$/).map((part) => part.trim()).reduce((a, b) => (b.length > a.length ? b : a), '')
}
