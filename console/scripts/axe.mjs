// Runs axe over each view, light and dark, wide and narrow, with its dialogs and
// menus. One finding fails.
// Usage: node scripts/axe.mjs [light|dark|phone]...
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { findViews, openBrowser, signIn } from './browser.mjs'

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const LOOKS = {
  light: { viewport: { width: 1280, height: 800 }, colorScheme: 'light' },
  dark: { viewport: { width: 1280, height: 800 }, colorScheme: 'dark' },
  phone: { viewport: { width: 360, height: 740 }, colorScheme: 'light' },
}
const only = process.argv.slice(2)
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

let findings = 0
let checked = 0
async function check(page, name) {
  // The CSP of the page keeps inline scripts out, so axe comes by the debugger.
  await page.evaluate(axe)
  const { violations } = await page.evaluate((tags) => globalThis.axe.run(document, { runOnly: tags, resultTypes: ['violations'] }), TAGS)
  checked++
  for (const v of violations) {
    findings++
    console.error(`${name}: ${v.id}: ${v.help}`)
    for (const node of v.nodes.slice(0, 3)) console.error(`  ${node.html.slice(0, 160)}\n  ${node.failureSummary.split('\n').slice(1, 3).join(' ').trim()}`)
  }
}

const { url, browser, close } = await openBrowser()
try {
  for (const [look, options] of Object.entries(LOOKS)) {
    if (only.length > 0 && !only.includes(look)) continue
    const page = await (await browser.newContext({ ...options, reducedMotion: 'reduce' })).newPage()
    page.on('pageerror', (err) => {
      findings++
      console.error(`${look}: ${page.url()}: ${err.message}`)
    })
    page.on('console', (m) => {
      if (!/Content Security Policy/.test(m.text())) return
      findings++
      console.error(`${look}: ${page.url()}: ${m.text()}`)
    })
    await page.goto(`${url}signin`)
    await page.getByRole('button').first().waitFor()
    await check(page, `signin ${look}`)
    await signIn(page, url, 'bob')
    for (const [name, path] of await findViews(page, url)) {
      await page.goto(url + path)
      await page.locator('main h1, main .notice').first().waitFor()
      await page.waitForTimeout(300)
      await check(page, `${name} ${look}`)
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wide > 0) {
        findings++
        console.error(`${name} ${look}: the page is ${wide} px wider than the screen`)
      }
      const cli = page.locator('details.menu summary')
      if (name === 'stuck' && (await cli.count())) {
        await cli.first().click()
        await check(page, `${name} ${look}, commands`)
        await page.keyboard.press('Escape')
      }
      for (const label of name === 'execution' ? ['Approve'] : name === 'cluster' ? ['Edit', 'Pause'] : []) {
        await page.getByRole('button', { name: label, exact: true }).click()
        await page.locator('dialog[open]').waitFor()
        await check(page, `${name} ${look}, ${label}`)
        await page.keyboard.press('Escape')
      }
      if (name === 'timeline-incident') {
        await page.locator('.event-line').last().click()
        await page.locator('.event-detail').first().waitFor()
        await check(page, `${name} ${look}, one event`)
      }
    }
    await page.context().close()
  }
} finally {
  await close()
}
console.log(`axe: ${findings} findings in ${checked} states`)
process.exitCode = findings > 0 ? 1 : 0
