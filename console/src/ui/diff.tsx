import { Fragment } from 'react'
import type { Line } from '../lib/diff'
import { S } from '../strings'

const MARKS = { add: '+', del: '−', same: ' ' } as const

/** Diff shows changed lines with a sign and a colour. */
export function Diff({ lines, label }: { lines: Line[]; label: string }) {
  if (lines.length === 0 || lines.every((l) => l.kind === 'skip')) return <p className="dim">{S.noDifference}</p>
  return (
    <div className="diff" role="region" aria-label={label} tabIndex={0}>
      {lines.map((line, i) => (
        <Fragment key={i}>
          {line.kind === 'skip'
            ? <div className="line skip">{S.unchangedLines(line.count)}</div>
            : (
              <div className={`line ${line.kind}`}>
                <span className="sign">{MARKS[line.kind]}</span>
                {line.kind !== 'same' && <span className="hidden">{line.kind === 'add' ? S.added : S.removed}</span>}
                <code>{line.text || ' '}</code>
              </div>
            )}
        </Fragment>
      ))}
    </div>
  )
}
