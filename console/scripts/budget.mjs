// Compares the size of the built page with its budget: what a browser loads for
// the first route, and everything.
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

const KB = 1000
const budget = { first: 120 * KB, all: 250 * KB }

const dist = process.env.CONSOLE_DIST ?? new URL('../../internal/console/dist', import.meta.url).pathname
const sizes = new Map()
for (const file of await readdir(dist, { recursive: true, withFileTypes: true })) {
  if (!file.isFile()) continue
  const path = join(file.parentPath ?? file.path, file.name)
  sizes.set(path.slice(dist.length).replace(/^\/+/, ''), { path, gzip: gzipSync(await readFile(path), { level: 9 }).length })
}

// The first route is index.html, what it names, the view Now, and whatever
// those import statically.
const html = await readFile(join(dist, 'index.html'), 'utf8')
const first = new Set(['index.html'])
const visit = async (name) => {
  if (first.has(name) || !sizes.has(name)) return
  first.add(name)
  if (!name.endsWith('.js')) return
  const code = await readFile(sizes.get(name).path, 'utf8')
  for (const [, dep] of code.matchAll(/(?:from|import)\s*["'`]\.\/([^"'`]+)["'`]/g)) await visit(`assets/${dep}`)
}
for (const [, name] of html.matchAll(/(?:src|href)="\.\/([^"]+)"/g)) await visit(name)
for (const name of sizes.keys()) if (/^assets\/Now-/.test(name)) await visit(name)

const sum = (names) => [...names].reduce((n, name) => n + sizes.get(name).gzip, 0)
const measured = { first: sum(first), all: sum(sizes.keys()) }
let over = false
for (const part of ['first', 'all']) {
  over ||= measured[part] > budget[part]
  console.log(`gzip ${part.padEnd(5)} ${(measured[part] / KB).toFixed(1)} kB of ${budget[part] / KB} kB`)
}
if (over) {
  for (const [name, { gzip }] of [...sizes].sort((a, b) => b[1].gzip - a[1].gzip)) console.log(`  ${gzip} ${name}${first.has(name) ? ' (first route)' : ''}`)
  console.error('the page is larger than its budget: import less, or load it with its route')
  process.exit(1)
}
