import { S } from '../strings'

/** UndeliveredChip filters a list by change events that a sink does not have. */
export function UndeliveredChip({ count, pressed, toggle }: { count: number; pressed: boolean; toggle: (filter: 'failing' | undefined) => void }) {
  if (count === 0 && !pressed) return null
  return <button type="button" className="chip" aria-pressed={pressed} onClick={() => toggle(pressed ? undefined : 'failing')}>{S.undelivered} <b className="num">{count}</b></button>
}
