import { describe, expect, test } from 'vitest'
import { assignSlots } from '../src/lib/slots'

describe('slots', () => {
  const at = (keys: string) => [...keys]
  test('a key keeps its slot, and a new one takes a free slot', () => {
    const first = assignSlots(at('abcd'), new Map())
    expect([...first.values()]).toEqual([0, 1, 2, 3])
    const scrolled = assignSlots(at('cdef'), first)
    expect(at('cdef').map((k) => scrolled.get(k))).toEqual([2, 3, 0, 1])
  })
  test('a row that is inserted moves no other', () => {
    const first = assignSlots(at('abc'), new Map())
    const next = assignSlots(at('xabc'), first)
    expect(at('abc').map((k) => next.get(k))).toEqual([0, 1, 2])
    expect(next.get('x')).toBe(3)
  })
  test('fewer rows free slots, and more rows have new ones', () => {
    const few = assignSlots(at('c'), assignSlots(at('abc'), new Map()))
    expect(few.get('c')).toBe(2)
    const many = assignSlots(at('cdefg'), few)
    expect(new Set(many.values()).size).toBe(5)
  })
})
