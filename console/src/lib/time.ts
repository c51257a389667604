// Ages, durations and points in time as people read them.

/** formatDuration rounds down: 42 s, 3 min 5 s, 12 min, 2 h 10 min, 3 d 4 h, 9 d. */
export function formatDuration(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000))
  const minutes = Math.floor(seconds / 60)
  const hours = Math.floor(minutes / 60)
  const days = Math.floor(hours / 24)
  const pair = (n: number, unit: string, rest: number, smaller: string) => (rest ? `${n} ${unit} ${rest} ${smaller}` : `${n} ${unit}`)
  if (minutes === 0) return `${seconds} s`
  if (minutes < 10) return pair(minutes, 'min', seconds % 60, 's')
  if (hours === 0) return `${minutes} min`
  if (days === 0) return pair(hours, 'h', minutes % 60, 'min')
  return days < 7 ? pair(days, 'd', hours % 24, 'h') : `${days} d`
}

/** millis returns the time of a timestamp, or undefined if it is none. */
export function millis(at: string | number | undefined): number | undefined {
  if (at === undefined || at === '') return undefined
  const ms = typeof at === 'number' ? at : Date.parse(at)
  return Number.isNaN(ms) ? undefined : ms
}

export type Zone = 'local' | 'utc'

// Made once: a formatter costs far more than what it formats.
const formatters: Partial<Record<Zone, Intl.DateTimeFormat>> = {}

/** formatTime writes a point in time to the second, with its zone. */
export function formatTime(at: string | number, zone: Zone): string {
  const ms = millis(at)
  if (ms === undefined) return String(at)
  const formatter = (formatters[zone] ??= new Intl.DateTimeFormat('sv-SE', {
    year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit',
    timeZone: zone === 'utc' ? 'UTC' : undefined,
  }))
  const text = formatter.format(ms)
  return zone === 'utc' ? `${text} UTC` : text
}

/** formatClock writes the time of day alone. */
export function formatClock(at: string | number, zone: Zone, seconds = true): string {
  const text = formatTime(at, zone)
  return text.slice(11, seconds ? 19 : 16)
}

const AGES: Record<string, number> = { s: 1e3, m: 6e4, h: 36e5, d: 864e5 }

/** parseMoment reads a time, or an age such as 90m that counts back from now. */
export function parseMoment(text: string | undefined, now: number): number | undefined {
  if (!text || text === 'now') return text === 'now' ? now : undefined
  const age = /^(\d+)([smhd])$/.exec(text)
  if (age) return now - Number(age[1]) * AGES[age[2] ?? 's']!
  return millis(text)
}
