import { Link } from '@tanstack/react-router'
import type { ChangeEvent } from '../api/types'
import { millis } from '../lib/time'
import { S } from '../strings'
import { Age, Tag } from './basics'
import { Icon } from './icons'

/** around returns the ten minutes before and the five after a change, as a link's parameters. */
export function around(change: ChangeEvent): Record<string, string> {
  const at = millis(change.timestamp) ?? Date.now()
  const iso = (ms: number) => new Date(ms).toISOString().slice(0, 19) + 'Z'
  return { from: iso(at - 600_000), to: iso(at + 300_000), ...(change.cluster ? { cluster: change.cluster } : {}), event: change.id }
}

/** ChangeLine is one change event: who did what to which object, and how it ended. */
export function ChangeLine({ change }: { change: ChangeEvent }) {
  const what = change.subject || change.node
  return (
    <li className={change.dryRun ? 'change dry' : 'change'}>
      <span className="change-time"><Age at={change.timestamp} /></span>
      <span className={`state ${change.outcome === 'failed' ? 'bad' : 'ok'}`}><Icon name={change.outcome === 'failed' ? 'bad' : 'ok'} /><Link to="/timeline" search={around(change) as never}>{change.action}</Link></span>
      <span className="change-what">{change.summary || [what, change.reason].filter(Boolean).join(' · ')}{change.dryRun && <Tag>{S.dryRun}</Tag>}</span>
      <span className="dim change-who">{[change.cluster, change.actor].filter(Boolean).join(' · ')}</span>
    </li>
  )
}
