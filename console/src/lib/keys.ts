// Keyboard: single keys, and two keys in a row such as "g t".

export interface KeyState { prefix: string; at: number }
export const NO_KEYS: KeyState = { prefix: '', at: 0 }
const SEQUENCE_MS = 1200

/** readKey returns the pressed combination, or what to wait for after a prefix. */
export function readKey(state: KeyState, key: string, now: number, prefixes: ReadonlySet<string>): { state: KeyState; combo: string } {
  const pending = state.prefix !== '' && now - state.at <= SEQUENCE_MS
  if (pending) return { state: NO_KEYS, combo: `${state.prefix} ${key}` }
  if (prefixes.has(key)) return { state: { prefix: key, at: now }, combo: '' }
  return { state: NO_KEYS, combo: key }
}

/** isTyping is true where a letter is text and not a command. */
export function isTyping(target: { tagName?: string; isContentEditable?: boolean; type?: string } | null): boolean {
  if (!target) return false
  if (target.isContentEditable) return true
  const tag = target.tagName?.toLowerCase()
  if (tag === 'input') return !['checkbox', 'radio', 'button', 'submit'].includes(target.type ?? 'text')
  return tag === 'textarea' || tag === 'select'
}
