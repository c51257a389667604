// Line diffs, and the few lines around each change that a reader needs.

export type Line = { kind: 'same' | 'add' | 'del'; text: string; before?: number; after?: number } | { kind: 'skip'; count: number }

/** diffLines compares two texts line by line, with the fewest changed lines. */
export function diffLines(before: string, after: string): Line[] {
  const a = before === '' ? [] : before.replace(/\n$/, '').split('\n')
  const b = after === '' ? [] : after.replace(/\n$/, '').split('\n')
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head++
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
  const middleA = a.slice(head, a.length - tail)
  const middleB = b.slice(head, b.length - tail)

  const lines: Line[] = []
  let i = 0
  let j = 0
  const same = (text: string) => lines.push({ kind: 'same', text, before: ++i, after: ++j })
  for (const text of a.slice(0, head)) same(text)
  for (const [kind, text] of compare(middleA, middleB)) {
    if (kind === 'same') same(text)
    else if (kind === 'del') lines.push({ kind, text, before: ++i })
    else lines.push({ kind, text, after: ++j })
  }
  for (const text of a.slice(a.length - tail)) same(text)
  return lines
}

// compare finds a longest common subsequence. Texts that are too different for
// its table become one deletion and one addition.
function compare(a: string[], b: string[]): ['same' | 'add' | 'del', string][] {
  if (a.length * b.length > 4_000_000) return [...a.map((t) => ['del', t] as ['del', string]), ...b.map((t) => ['add', t] as ['add', string])]
  const width = b.length + 1
  const longest = new Uint32Array((a.length + 1) * width)
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j]
        ? longest[(i + 1) * width + j + 1]! + 1
        : Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!)
    }
  }
  const out: ['same' | 'add' | 'del', string][] = []
  let i = 0
  let j = 0
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push(['same', a[i]!])
      i++
      j++
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)) {
      out.push(['del', a[i++]!])
    } else {
      out.push(['add', b[j++]!])
    }
  }
  return out
}

/** foldLines hides the unchanged lines that are further than context from a change. */
export function foldLines(lines: Line[], context = 3): Line[] {
  const near = new Uint8Array(lines.length)
  lines.forEach((line, at) => {
    if (line.kind !== 'add' && line.kind !== 'del') return
    for (let k = Math.max(0, at - context); k <= Math.min(lines.length - 1, at + context); k++) near[k] = 1
  })
  const out: Line[] = []
  let hidden = 0
  lines.forEach((line, at) => {
    if (near[at]) {
      if (hidden) out.push({ kind: 'skip', count: hidden })
      hidden = 0
      out.push(line)
    } else hidden++
  })
  if (hidden) out.push({ kind: 'skip', count: hidden })
  return out
}

/** readUnified marks the lines of a diff that the server made. */
export function readUnified(diff: string): Line[] {
  return diff.replace(/\n$/, '').split('\n').map((text) => {
    if (/^(\+\+\+|---|@@)/.test(text)) return { kind: 'same', text }
    if (text.startsWith('+')) return { kind: 'add', text: text.slice(1) }
    if (text.startsWith('-')) return { kind: 'del', text: text.slice(1) }
    return { kind: 'same', text: text.startsWith(' ') ? text.slice(1) : text }
  })
}
