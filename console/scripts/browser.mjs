// The views, and a Chromium that opens them: Debian's, because playwright-core
// brings none of its own.
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chromium } from 'playwright-core'

const CHROMIUM = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((p) => p && existsSync(p))

/** openBrowser starts the mock and a browser; close() ends both. */
export async function openBrowser() {
  if (!CHROMIUM) throw new Error('no Chromium found: run tools/setup chromium, or set CHROMIUM')
  const args = [new URL('../mock/server.mjs', import.meta.url).pathname, '--quiet', '--port', '0']
  if (process.env.CONSOLE_DIST) args.push('--dist', process.env.CONSOLE_DIST)
  const mock = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const url = await new Promise((resolve, reject) => {
    mock.once('exit', (code) => reject(new Error(`the mock server ended with code ${code}`)))
    mock.stdout.on('data', (text) => {
      const found = /http:\S+/.exec(String(text))
      if (found) resolve(found[0])
    })
  })
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] })
  return {
    url,
    browser,
    close: async () => {
      await browser.close()
      mock.kill()
    },
  }
}

/** signIn continues as a person of the demo. */
export async function signIn(page, url, person) {
  await page.goto(`${url}signin`)
  await page.getByRole('button', { name: person }).click()
  await page.waitForURL((u) => !u.pathname.endsWith('/signin'))
}

/** findViews returns a name and a path for each view, with the ids of the mock's fleet. */
export async function findViews(page, url) {
  const of = (kind, name) => page.evaluate(async ([path, n]) => {
    const list = await (await fetch(path)).json()
    return list.items.find((i) => i.name === n || !n).id
  }, [`${url}api/hyperfleet/v1/${kind}?size=500&order=name`, name])
  const cluster = await of('clusters', 'eu-west-03')
  const pool = await of('nodepools', '')
  return [
    ['now', ''],
    ['clusters', 'clusters?group=region'],
    ['clusters-filtered', 'clusters?labels=region=eu-west&phase=Failed,Provisioning&order=status.last_transition_time+asc'],
    ['nodepools', 'nodepools'],
    ['cluster', `clusters/${cluster}`],
    ['cluster-revisions', `clusters/${cluster}?tab=revisions`],
    ['cluster-yaml', `clusters/${cluster}?tab=yaml`],
    ['nodepool', `nodepools/${pool}`],
    ['stuck', 'stuck'],
    ['timeline', 'timeline'],
    ['timeline-incident', 'timeline?cluster=eu-west-03&from=15m'],
    ['timeline-failing-deliveries', 'timeline?deliveries=failing'],
    ['executions', 'executions'],
    ['execution', 'executions/prod-host/kubernaut-executor/scale-web-x7kq2'],
    ['execution-running', 'executions/prod-host/kubernaut-executor/restart-search-9fj2'],
    ['nodes', 'nodes?node=gpu-04'],
    ['coverage', 'coverage'],
    ['empty', 'clusters?text=nothing-has-this-name'],
    ['not-found', 'clusters/00000000-0000-0000-0000-000000000000'],
  ]
}
