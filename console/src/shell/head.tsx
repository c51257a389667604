// The head of a view: its name, what it answers, the age of its data, its commands.
import type { ReactNode } from 'react'
import { Freshness } from '../ui/basics'

export function Head({ title, hint, asOf, live, children }: { title: ReactNode; hint?: ReactNode; asOf?: number | string; live?: boolean; children?: ReactNode }) {
  return (
    <header className="head">
      <div><h1>{title}</h1>{hint && <p className="dim">{hint}</p>}</div>
      <div className="head-side"><Freshness asOf={asOf} live={live} />{children}</div>
    </header>
  )
}
