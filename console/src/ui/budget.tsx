import { S } from '../strings'
import { Age } from './basics'
import { Icon } from './icons'

/** Budget shows how many nodes may be out of service, and how many are. */
export function Budget({ host, pool, limit, used, blocked_since }: { host: string; pool?: string; limit?: number; used: number; blocked_since?: string }) {
  return (
    <div className="budget">
      <div><span>{S.budgetOf([host, pool].filter(Boolean).join('/'))}</span><b className="num">{limit === undefined ? used : S.budgetUse(used, limit)}</b></div>
      {limit !== undefined && <meter aria-label={S.budget} min={0} max={Math.max(limit, 1)} high={Math.max(limit, 1) - 0.5} optimum={0} value={used}>{used} / {limit}</meter>}
      {limit !== undefined && <p className="dim">{S.budgetCounts}</p>}
      {blocked_since && <p className="state warn"><Icon name="warn" />{S.budgetBlocked} <Age at={blocked_since} bare /></p>}
    </div>
  )
}

