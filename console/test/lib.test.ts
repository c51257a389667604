import { describe, expect, test } from 'vitest'
import { command, flag, shellQuote } from '../src/lib/cli'
import { csvCell, csvRow } from '../src/lib/csv'
import { diffLines, foldLines, readUnified } from '../src/lib/diff'
import { isTyping, NO_KEYS, readKey } from '../src/lib/keys'
import { parseLabels } from '../src/lib/labels'
import { pan, ticks, zoom } from '../src/lib/lanes'
import { formatParams, literalPart, localPath, mergeParams, parseParams, searchQuery, toggleSelector } from '../src/lib/search'
import { formatClock, formatDuration, formatTime, parseMoment } from '../src/lib/time'
import { sortKeys, toYaml } from '../src/lib/yaml'

describe('ages', () => {
  test.each([
    [0, '0 s'], [-5000, '0 s'], [59_999, '59 s'], [60_000, '1 min'], [185_000, '3 min 5 s'], [720_000, '12 min'], [3_599_000, '59 min'],
    [3_600_000, '1 h'], [7_800_000, '2 h 10 min'], [86_400_000, '1 d'], [273_600_000, '3 d 4 h'], [9 * 86_400_000 + 3_600_000, '9 d'],
  ])('%d ms is %s', (ms, text) => expect(formatDuration(ms)).toBe(text))

  test('UTC says so', () => {
    expect(formatTime('2026-11-27T21:00:05Z', 'utc')).toBe('2026-11-27 21:00:05 UTC')
    expect(formatClock('2026-11-27T21:00:05Z', 'utc', false)).toBe('21:00')
    expect(formatTime('never', 'utc')).toBe('never')
  })

  test('a moment is a time or an age', () => {
    expect(parseMoment('90m', 10_000_000)).toBe(10_000_000 - 5_400_000)
    expect(parseMoment('1970-01-01T00:00:01Z', 5)).toBe(1000)
    expect(parseMoment('now', 5)).toBe(5)
    expect(parseMoment('soon', 5)).toBeUndefined()
    expect(parseMoment(undefined, 5)).toBeUndefined()
  })
})

describe('diffs', () => {
  const kinds = (before: string, after: string) => diffLines(before, after).map((l) => (l.kind === 'skip' ? '' : { same: ' ', add: '+', del: '-' }[l.kind] + l.text))
  test('a changed line is a deletion and an addition', () => expect(kinds('a\nb\nc\n', 'a\nB\nc\n')).toEqual([' a', '-b', '+B', ' c']))
  test('nothing before is all added', () => expect(kinds('', 'a\nb')).toEqual(['+a', '+b']))
  test('equal texts have no change', () => expect(kinds('a\n', 'a\n')).toEqual([' a']))
  test('a move keeps the longest common part', () => expect(kinds('a\nb\nc\nd', 'b\nc\nd\na')).toEqual(['-a', ' b', ' c', ' d', '+a']))

  test('a diff turns the first text into the second', () => {
    let seed = 7
    const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n
    for (let round = 0; round < 200; round++) {
      const text = () => Array.from({ length: random(12) }, () => 'abc'[random(3)]).join('\n')
      const [before, after] = [text(), text()]
      const lines = diffLines(before, after)
      const of = (drop: string) => lines.flatMap((l) => (l.kind === 'skip' || l.kind === drop ? [] : [l.text])).join('\n')
      expect(of('add')).toBe(before)
      expect(of('del')).toBe(after)
    }
  })

  test('unchanged lines far from a change fold', () => {
    const before = Array.from({ length: 20 }, (_, i) => `line ${i}`)
    const after = before.with(10, 'changed')
    expect(foldLines(diffLines(before.join('\n'), after.join('\n')), 1).map((l) => (l.kind === 'skip' ? l.count : l.kind))).toEqual([9, 'same', 'del', 'add', 'same', 8])
  })

  test('a unified diff keeps its headers apart from changes', () => {
    expect(readUnified('--- a\n+++ b\n same\n-old\n+new\n').map((l) => l.kind)).toEqual(['same', 'same', 'same', 'del', 'add'])
  })
})

describe('YAML', () => {
  test('nested values', () => {
    expect(toYaml({ a: 1, b: { c: [1, { d: 'x y' }], e: [], f: {} }, g: null })).toBe('a: 1\nb:\n  c:\n  - 1\n  - d: x y\n  e: []\n  f: {}\ng: null\n')
  })
  test.each(['true', '1.34', 'a: b', '- x', '', 'no', "it's #1"])('%j stays a string', (text) => expect(toYaml({ k: text })).toBe(`k: ${JSON.stringify(text)}\n`))
  test('several lines', () => expect(toYaml({ k: 'a\nb' })).toBe('k: |-\n  a\n  b\n'))
  test('sorted keys', () => expect(JSON.stringify(sortKeys({ b: [{ d: 1, c: 2 }], a: null }))).toBe('{"a":null,"b":[{"c":2,"d":1}]}'))
})

describe('CSV', () => {
  test.each([
    ['plain', 'plain'], ['a,b', '"a,b"'], ['say "hi"', '"say ""hi"""'], ['two\nlines', '"two\nlines"'], [undefined, ''], [-3, '-3'],
    ['=cmd()', "'=cmd()"], ['@x', "'@x"], [{ a: 1 }, '"{""a"":1}"'],
  ])('%j becomes %s', (value, cell) => expect(csvCell(value)).toBe(cell))
  test('a row ends with CRLF', () => expect(csvRow(['a', 1, null])).toBe('a,1,\r\n'))
})

describe('state in the URL', () => {
  test('what is written is read', () => {
    const params = { labels: 'tier in (a,b),x=y', text: "o'hare & co", from: '2026-11-27T21:00:00Z' }
    expect(parseParams(formatParams(params))).toEqual(params)
    expect(formatParams({ b: '1', a: '', c: undefined })).toBe('?b=1')
    expect(formatParams({})).toBe('')
  })
  test('an empty value removes a parameter', () => expect(mergeParams({ a: '1', b: '2' }, { a: '', c: '3' })).toEqual({ b: '2', c: '3' }))
  test('the search quotes', () => {
    expect(searchQuery("it's", 'Failed')).toBe("name like '%it''s%' and status.phase = 'Failed'")
    expect(searchQuery('', 'Failed,Ready')).toBe("status.phase in ('Failed','Ready')")
    expect(searchQuery(undefined, undefined)).toBe('')
  })
  test('a reason leads to its messages', () => {
    expect(literalPart('quota <value> exceeded in project <name>: <n>')).toBe('exceeded in project')
    expect(literalPart('no zone')).toBe('no zone')
  })
  test.each([
    ['', 'a=1'], ['a=1', ''], ['a=2,b=3', 'b=3,a=1'], ['a in (1,2),b', 'b,a=1'], ['a.b=2', 'a.b=2,a=1'], ['!c', '!c,a=1'],
  ])('toggling a=1 in %j gives %j', (selector, want) => expect(toggleSelector(selector, 'a', '1')).toBe(want))
  test.each([
    ['/clusters?x=1', '/clusters?x=1'], ['//evil.example', '/'], ['/\\evil.example', '/'], ['https://evil.example', '/'], ['javascript:alert(1)', '/'], ['/a\tb', '/'], [undefined, '/'],
  ])('after signing in, %j leads to %s', (to, want) => expect(localPath(to)).toBe(want))
})

describe('keys', () => {
  const g = new Set(['g'])
  test('a sequence', () => {
    const first = readKey(NO_KEYS, 'g', 1000, g)
    expect(first.combo).toBe('')
    expect(readKey(first.state, 't', 1500, g)).toEqual({ state: NO_KEYS, combo: 'g t' })
    expect(readKey(first.state, 't', 9000, g).combo).toBe('t')
    expect(readKey(NO_KEYS, 'j', 1000, g).combo).toBe('j')
  })
  test('letters in a field are text', () => {
    expect(isTyping({ tagName: 'INPUT', type: 'search' })).toBe(true)
    expect(isTyping({ tagName: 'INPUT', type: 'checkbox' })).toBe(false)
    expect(isTyping({ tagName: 'BUTTON' })).toBe(false)
    expect(isTyping(null)).toBe(false)
  })
})

describe('commands', () => {
  test('quoting', () => {
    expect(shellQuote('region=eu-west')).toBe('region=eu-west')
    expect(shellQuote("it's")).toBe(`'it'\\''s'`)
    expect(command('fleetloop', 'get', 'clusters', '-l', 'tier in (a,b)', flag('cluster', undefined))).toBe("fleetloop get clusters -l 'tier in (a,b)'")
    expect(command('x', flag('reason', '$(reboot)'))).toBe("x '--reason=$(reboot)'")
  })
})

describe('labels', () => {
  test('lines', () => {
    expect(parseLabels('a=1\n\n b = x=y \n')).toEqual({ labels: { a: '1', b: 'x=y' } })
    expect(parseLabels('a=1\nbroken')).toHaveProperty('error')
    expect(parseLabels('a=1\na=2')).toHaveProperty('error')
  })
})

describe('the window of the timeline', () => {
  const hour = { from: 0, to: 3_600_000 }
  test('zooming keeps the point', () => expect(zoom(hour, 0.5, 900_000, 9e9)).toEqual({ from: 450_000, to: 2_250_000 }))
  test('it never ends in the future', () => {
    expect(pan(hour, 0.5, 3_600_000)).toEqual(hour)
    expect(zoom(hour, 2, 1_800_000, 3_600_000).to).toBe(3_600_000)
  })
  test('it has a minimum', () => expect(zoom({ from: 0, to: 60_000 }, 0.1, 30_000, 9e9)).toEqual({ from: 0, to: 60_000 }))
  test('ticks are round in the zone', () => {
    expect(ticks({ from: 0, to: 3_600_000 }, 6, 0)).toEqual([0, 600_000, 1_200_000, 1_800_000, 2_400_000, 3_000_000, 3_600_000])
    expect(ticks({ from: 0, to: 4 * 86_400_000 }, 6, 19_800_000)[0]).toBe(86_400_000 - 19_800_000)
  })
})
