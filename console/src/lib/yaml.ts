// JSON values as YAML, for reading and for diffs.

const PLAIN = /^[A-Za-z_./][\w./@-]*( [\w./@(),-]+)*$/
const RESERVED = /^(true|false|null|yes|no|on|off|y|n|~)$/i

function scalar(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value ?? null)
  return PLAIN.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value)
}

/** toYaml writes a JSON value as YAML, keys in their order. */
export function toYaml(value: unknown, indent = ''): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return `${indent}[]\n`
    return value.map((item) => `${indent}- ${toYaml(item, `${indent}  `).slice(indent.length + 2)}`).join('')
  }
  if (value !== null && typeof value === 'object') {
    const entries = Object.entries(value)
    if (entries.length === 0) return `${indent}{}\n`
    return entries.map(([key, item]) => {
      const name = `${indent}${scalar(key)}:`
      const nested = item !== null && typeof item === 'object' && Object.keys(item).length > 0
      if (nested) return `${name}\n${toYaml(item, Array.isArray(item) ? indent : `${indent}  `)}`
      if (typeof item === 'string' && item.includes('\n')) {
        return `${name} |-\n${item.split('\n').map((line) => `${indent}  ${line}`).join('\n')}\n`
      }
      return `${name} ${Array.isArray(item) ? '[]' : item !== null && typeof item === 'object' ? '{}' : scalar(item)}\n`
    }).join('')
  }
  return `${indent}${scalar(value)}\n`
}

/** sortKeys orders the keys of all objects, so that two specs compare by content. */
export function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys)
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, item]) => [key, sortKeys(item)]))
}
