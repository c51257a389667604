// Takes a picture of each view: light, dark, and on a phone.
// Usage: node scripts/pictures.mjs DIR [VIEW...]
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { findViews, openBrowser, signIn } from './browser.mjs'

const [dir = 'pictures', ...only] = process.argv.slice(2)
const LOOKS = {
  light: { viewport: { width: 1440, height: 900 }, colorScheme: 'light' },
  dark: { viewport: { width: 1440, height: 900 }, colorScheme: 'dark' },
  phone: { viewport: { width: 360, height: 760 }, colorScheme: 'light', deviceScaleFactor: 2 },
}

await mkdir(dir, { recursive: true })
const { url, browser, close } = await openBrowser()
try {
  for (const [look, options] of Object.entries(LOOKS)) {
    if (process.env.LOOK && process.env.LOOK !== look) continue
    const page = await (await browser.newContext(options)).newPage()
    page.on('console', (m) => m.type() === 'error' && !/40[14]/.test(m.text()) && console.error(`${look}: ${m.text()}`))
    page.on('pageerror', (err) => console.error(`${look}: ${err.message}`))
    await page.goto(`${url}signin`)
    await page.getByRole('button').first().waitFor()
    if (only.length === 0) await page.screenshot({ path: join(dir, `signin-${look}.png`) })
    await signIn(page, url, 'bob')
    for (const [name, path] of await findViews(page, url)) {
      if (only.length > 0 && !only.includes(name)) continue
      await page.goto(url + path)
      await page.waitForLoadState('load')
      await page.waitForTimeout(900)
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (wide > 0) console.error(`${look} ${name}: the page is ${wide} px wider than the screen`)
      await page.screenshot({ path: join(dir, `${name}-${look}.png`) })
      if (look === 'phone' && process.env.FULL) {
        const main = await page.evaluate(() => document.querySelector('main')?.scrollHeight ?? 0)
        await page.setViewportSize({ width: 360, height: Math.min(2600, main + 70) })
        await page.waitForTimeout(200)
        await page.screenshot({ path: join(dir, `${name}-${look}-full.png`) })
        await page.setViewportSize(options.viewport)
      }
    }
    await page.context().close()
  }
} finally {
  await close()
}
