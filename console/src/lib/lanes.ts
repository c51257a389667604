// The window of the timeline and its lanes.

export interface Window { from: number; to: number }

const MIN_MS = 60_000
const MAX_MS = 90 * 86_400_000

/** zoom scales a window around a point in it; factors below 1 zoom in. It never ends after limit. */
export function zoom(window: Window, factor: number, around: number, limit: number): Window {
  const width = Math.min(MAX_MS, Math.max(MIN_MS, (window.to - window.from) * factor))
  const share = (around - window.from) / (window.to - window.from)
  return clamp({ from: around - width * share, to: around + width * (1 - share) }, limit)
}

/** pan moves a window by a share of its width. */
export function pan(window: Window, share: number, limit: number): Window {
  const by = (window.to - window.from) * share
  return clamp({ from: window.from + by, to: window.to + by }, limit)
}

function clamp({ from, to }: Window, limit: number): Window {
  const over = Math.max(0, to - limit)
  return { from: Math.round(from - over), to: Math.round(to - over) }
}

const STEPS = [1, 5, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800].map((s) => s * 1000)

/** ticks returns round points in time, at most count of them. */
export function ticks({ from, to }: Window, count: number, offset: number): number[] {
  const step = STEPS.find((s) => (to - from) / s <= count) ?? STEPS[STEPS.length - 1]!
  const out: number[] = []
  for (let t = Math.ceil((from + offset) / step) * step - offset; t <= to; t += step) out.push(t)
  return out
}

export const toIso = (ms: number): string => new Date(ms).toISOString().slice(0, 19) + 'Z'
