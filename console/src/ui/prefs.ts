// What a person prefers on this device: the theme and the time zone. Nothing
// that identifies anybody is stored in the browser.
import { useSyncExternalStore } from 'react'
import type { Zone } from '../lib/time'

export type Theme = 'system' | 'light' | 'dark'

const listeners = new Set<() => void>()

function read<T extends string>(name: string, allowed: readonly T[], fallback: T): T {
  try {
    const value = localStorage.getItem(`fleetloop.${name}`) as T | null
    return value && allowed.includes(value) ? value : fallback
  } catch {
    return fallback
  }
}

const prefs = {
  theme: read<Theme>('theme', ['light', 'dark'], 'system'),
  zone: read<Zone>('zone', ['utc'], 'local'),
}

function change(): void {
  try {
    localStorage.setItem('fleetloop.theme', prefs.theme)
    localStorage.setItem('fleetloop.zone', prefs.zone)
  } catch {
    // A browser that stores nothing forgets the choice with the page.
  }
  showTheme()
  for (const listener of listeners) listener()
}

export function showTheme(): void {
  if (prefs.theme === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = prefs.theme
}

function isDark(): boolean {
  return prefs.theme === 'system' ? matchMedia('(prefers-color-scheme: dark)').matches : prefs.theme === 'dark'
}

export function toggleTheme(): void {
  prefs.theme = isDark() ? 'light' : 'dark'
  change()
}

export function toggleZone(): void {
  prefs.zone = prefs.zone === 'utc' ? 'local' : 'utc'
  change()
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export const useZone = (): Zone => useSyncExternalStore(subscribe, () => prefs.zone)
export const useDark = (): boolean => useSyncExternalStore(subscribe, isDark)

// One timer moves all ages of the page.
let now = Date.now()
const clocks = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined

function subscribeToClock(listener: () => void): () => void {
  clocks.add(listener)
  timer ??= setInterval(() => {
    now = Date.now()
    for (const clock of clocks) clock()
  }, 1000)
  return () => {
    clocks.delete(listener)
    if (clocks.size > 0) return
    clearInterval(timer)
    timer = undefined
  }
}

/** useNow returns the time, once per second. */
export const useNow = (): number =>
  useSyncExternalStore(subscribeToClock, () => (timer === undefined ? (now = Math.floor(Date.now() / 1000) * 1000) : now))

let phone: MediaQueryList | undefined
const ofPhone = (): MediaQueryList => (phone ??= matchMedia('(max-width: 720px)'))

function subscribeToWidth(listener: () => void): () => void {
  ofPhone().addEventListener('change', listener)
  return () => ofPhone().removeEventListener('change', listener)
}

/** useNarrow is true on a phone. */
export const useNarrow = (): boolean => useSyncExternalStore(subscribeToWidth, () => ofPhone().matches)
