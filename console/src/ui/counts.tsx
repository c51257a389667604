import { Link } from '@tanstack/react-router'
import { S } from '../strings'
import { State, toneOf } from './basics'

/** Counts shows how many are in which state: a bar, and a link for each state. */
export function Counts({ counts, order, to, param }: { counts: Partial<Record<string, number>>; order: string[]; to: string; param: string }) {
  const known = [...order, ...Object.keys(counts).filter((k) => !order.includes(k))].filter((state) => (counts[state] ?? 0) > 0)
  return (
    <>
      <div className="bar" aria-hidden="true">{known.map((state) => <span key={state} className={toneOf(state)[0]} style={{ flexGrow: counts[state] }} />)}</div>
      <ul className="counts">
        {known.map((state) => (
          <li key={state}>
            <Link to={to} search={{ [param]: state } as never}><State of={state} /><b className="num">{S.count(counts[state] ?? 0)}</b></Link>
          </li>
        ))}
      </ul>
    </>
  )
}

export const PHASES = ['Failed', 'Provisioning', 'Pending', 'Deleting', 'Ready']
export const SYNC_STATES = ['stuck', 'backing_off', 'paused', 'running', 'pending', 'synced']
