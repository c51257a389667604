/**
 * assignSlots gives each key a slot of its own: the one that it had, or one that no key has. A key that comes twice
 * has one slot.
 */
export function assignSlots<K>(keys: K[], had: ReadonlyMap<K, number>): Map<K, number> {
  const slots = new Map<K, number>()
  const taken = new Set<number>()
  for (const key of keys) {
    const slot = had.get(key)
    if (slot === undefined || slots.has(key)) continue
    slots.set(key, slot)
    taken.add(slot)
  }
  let next = 0
  for (const key of keys) {
    if (slots.has(key)) continue
    while (taken.has(next)) next++
    slots.set(key, next)
    taken.add(next)
  }
  return slots
}
