// The frame around every view: navigation, keys, the person, and the stream.
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, Navigate, Outlet, useLocation, useNavigate } from '@tanstack/react-router'
import { lazy, Suspense, useEffect, useState } from 'react'
import { write } from '../api/client'
import { sessionQuery } from '../api/queries'
import type { Session } from '../api/types'
import { currentPath, hostPath } from '../lib/base'
import { isTyping, NO_KEYS, readKey } from '../lib/keys'
import { openStream } from '../live/stream'
import type { Topic } from '../live/events'
import { S } from '../strings'
import { Failure } from '../ui/basics'
import { pressed, useKeys } from '../ui/hooks'
import { Icon, type IconName } from '../ui/icons'
import { toggleTheme, toggleZone, useDark, useZone } from '../ui/prefs'
import { Toast } from '../ui/toast'

const Help = lazy(() => import('./Help'))

export const VIEWS: { to: string; icon: IconName; label: string; key: string; topics: Topic[] }[] = [
  { to: '/', icon: 'now', label: S.now, key: 'n', topics: ['changes', 'executions', 'nodes', 'sentinels'] },
  { to: '/clusters', icon: 'clusters', label: S.clusters, key: 'c', topics: ['clusters'] },
  { to: '/nodepools', icon: 'nodepools', label: S.nodepools, key: 'p', topics: ['nodepools'] },
  { to: '/stuck', icon: 'stuck', label: S.stuck, key: 's', topics: ['clusters', 'nodepools', 'executions', 'nodes'] },
  { to: '/timeline', icon: 'timeline', label: S.timeline, key: 't', topics: ['changes'] },
  { to: '/executions', icon: 'executions', label: S.executions, key: 'e', topics: ['executions'] },
  { to: '/nodes', icon: 'nodes', label: S.nodes, key: 'o', topics: ['nodes'] },
  { to: '/coverage', icon: 'coverage', label: S.coverage, key: 'v', topics: ['sentinels'] },
]

const PREFIXES = new Set(['g'])

export function Root() {
  const session = useQuery(sessionQuery)
  const { pathname } = useLocation()
  if (session.error && !session.data) return <main className="alone"><Failure error={session.error} retry={() => void session.refetch()} /></main>
  if (!session.data) return <main className="alone" aria-busy="true"><span className="hidden">{S.loading}</span></main>
  const signedIn = session.data.signed_in || session.data.mode === 'none'
  if (pathname === '/signin') return <main className="alone"><Outlet /></main>
  if (!signedIn) return <Navigate to="/signin" search={{ to: currentPath() } as never} replace />
  return <Frame session={session.data} />
}

function Frame({ session }: { session: Session }) {
  const queries = useQueryClient()
  const navigate = useNavigate()
  const { pathname } = useLocation()
  const [help, setHelp] = useState(false)
  const [more, setMore] = useState(false)
  const view = VIEWS.findLast((v) => v.to === pathname || (v.to !== '/' && pathname.startsWith(v.to)))
  const detail = view !== undefined && view.to !== pathname
  const topics = [...(view?.topics ?? []), ...(detail && view?.to !== '/executions' ? ['changes' as const] : [])].join()

  useEffect(() => openStream(topics ? (topics.split(',') as Topic[]) : [], queries), [topics, queries])
  useEffect(() => {
    document.title = view ? `${view.label} · Fleetloop` : 'Fleetloop'
    setMore(false)
  }, [view, pathname])

  useKeys({
    '?': () => setHelp(true),
    '/': () => document.querySelector<HTMLElement>('[data-filter]')?.focus(),
    ...Object.fromEntries(VIEWS.map((v) => [`g ${v.key}`, () => void navigate({ to: v.to })])),
  })
  useEffect(() => {
    let keys = NO_KEYS
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return
      const target = event.target as HTMLElement | null
      if (isTyping(target as HTMLInputElement)) {
        if (event.key === 'Escape') target?.blur()
        return
      }
      // Enter on a link or a button is its own.
      if (event.key === 'Enter' && target?.closest('a,button,summary')) return
      const read = readKey(keys, event.key, event.timeStamp, PREFIXES)
      keys = read.state
      if (read.combo && pressed(read.combo)) event.preventDefault()
    }
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  }, [])

  return (
    <div className="frame">
      <a className="skip" href={`${pathname}#main`} onClick={(e) => {
        e.preventDefault()
        document.getElementById('main')?.focus()
      }}>{S.skip}</a>
      <nav aria-label={S.views} className={more ? 'open' : undefined}>
        <Link to="/" className="brand"><Logo /><span>Fleetloop</span></Link>
        <ul>
          {VIEWS.map((v) => (
            <li key={v.to}>
              <Link to={v.to} search={{} as never} activeOptions={{ exact: v.to === '/', includeSearch: false }} title={`g ${v.key}`}>
                <Icon name={v.icon} /><span>{v.label}</span><kbd aria-hidden="true">g {v.key}</kbd>
              </Link>
            </li>
          ))}
        </ul>
        <button type="button" className="more" aria-expanded={more} onClick={() => setMore(!more)}><Icon name="more" /><span>{S.more}</span></button>
        <Person session={session} onHelp={() => setHelp(true)} />
      </nav>
      <main id="main" tabIndex={-1}><Outlet /></main>
      <Toast />
      {help && <Suspense><Help onClose={() => setHelp(false)} /></Suspense>}
    </div>
  )
}

function Logo() {
  return (
    <svg className="logo" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M9 16a7 7 0 0 1 12.5-4.3M23 16a7 7 0 0 1-12.5 4.3M22.4 7.6v4.9h-4.9M9.6 24.4v-4.9h4.9" />
    </svg>
  )
}

function Person({ session, onHelp }: { session: Session; onHelp: () => void }) {
  const dark = useDark()
  const zone = useZone()
  const { user } = session
  const mayChange = session.mode !== 'none' || (session.demo_users?.length ?? 0) > 0
  // A new document forgets all that this person was shown.
  const leave = async () => {
    await write('POST', 'console/logout')
    location.assign(hostPath('/signin'))
  }
  return (
    <div className="person">
      {user && (
        <div className="who">
          <span className="avatar" aria-hidden="true">{user.name.slice(0, 1).toUpperCase()}</span>
          <span className="who-text"><strong>{user.name}</strong>{(user.tenant || user.roles?.length) && <span className="dim">{[user.tenant, ...(user.roles ?? [])].filter(Boolean).join(' · ')}</span>}</span>
          {mayChange && <button type="button" className="link" onClick={() => void leave()}>{S.signOut}</button>}
        </div>
      )}
      {!user && mayChange && <Link to="/signin" className="button">{S.signIn}</Link>}
      <div className="tools">
        <button type="button" className="tool" onClick={toggleTheme} title={dark ? S.toLight : S.toDark} aria-label={dark ? S.toLight : S.toDark}><Icon name={dark ? 'sun' : 'moon'} /></button>
        <button type="button" className="tool" onClick={toggleZone} title={S.zoneHint} aria-label={`${S.zoneHint}: ${zone === 'utc' ? 'UTC' : S.localTime}`}>{zone === 'utc' ? 'UTC' : S.local}</button>
        <button type="button" className="tool" onClick={onHelp} title={S.help} aria-label={S.help}><Icon name="help" /></button>
        {session.version && <span className="dim version" title={session.version}>{session.version}</span>}
      </div>
    </div>
  )
}
