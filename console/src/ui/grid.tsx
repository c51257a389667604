// Tables. A row is a line on a wide screen and a card on a narrow one; the roles
// of a table are given explicitly, because the layout is not one.
import { type CSSProperties, memo, type ReactNode, useEffect } from 'react'
import { S } from '../strings'
import { Icon } from './icons'

export interface Column<R> {
  id: string
  label: string
  /** The width as a track of a CSS grid. */
  track: string
  cell: (row: R) => ReactNode
  /** The column by which the API sorts. */
  sort?: string
  num?: boolean
  /** On a narrow screen: the first line, a full line, or nothing. */
  narrow?: 'main' | 'full' | 'hide'
}

export interface GridProps<R> {
  label: string
  columns: Column<R>[]
  sort?: string
  onSort?: (sort: string) => void
  selection?: { has: (row: R) => boolean; toggle: (row: R) => void; name: (row: R) => string; can?: (row: R) => boolean }
}

const template = <R,>(props: GridProps<R>): CSSProperties => ({
  gridTemplateColumns: `${props.selection ? '28px ' : ''}${props.columns.map((c) => c.track).join(' ')}`,
})

export function GridHead<R>(props: GridProps<R>) {
  const [column, direction] = (props.sort ?? '').split(' ')
  return (
    <div role="rowgroup" className="grid-head">
      <div role="row" className="row" style={template(props)}>
        {props.selection && <span role="columnheader"><span className="hidden">{S.select}</span></span>}
        {props.columns.map((c) => {
          const sorted = c.sort !== undefined && c.sort === column
          return (
            <span key={c.id} role="columnheader" className={c.num ? 'num right' : undefined} aria-sort={c.sort ? (sorted ? (direction === 'desc' ? 'descending' : 'ascending') : 'none') : undefined}>
              {c.sort && props.onSort
                ? (
                  <button type="button" className="sort" onClick={() => props.onSort?.(`${c.sort} ${sorted && direction !== 'desc' ? 'desc' : 'asc'}`)}>
                    {c.label}{sorted && <Icon name={direction === 'desc' ? 'down' : 'up'} />}
                  </button>
                )
                : c.label}
            </span>
          )
        })}
      </div>
    </div>
  )
}

interface RowProps<R> {
  row: R | undefined
  index: number
  at: boolean
  grid: GridProps<R>
  /** Where the row is, in a list that places its rows itself. */
  top?: number
  height?: number
  onPoint?: (index: number) => void
}

/** GridRow is drawn again only if one of its properties changes: scrolling draws the rows that come into view. */
export const GridRow = memo(function GridRow<R>({ row, index, at, grid, top, height, onPoint }: RowProps<R>) {
  const place = top === undefined ? undefined : { transform: `translateY(${top}px)`, height }
  return (
    <div role="row" aria-rowindex={index + 2} className={at ? 'row at' : 'row'} style={{ ...template(grid), ...place }} onClick={() => onPoint?.(index)}>
      {row === undefined
        ? <span role="cell" className="bone-cell"><span className="bone" /></span>
        : (
          <>
            {grid.selection && (
              <span role="cell" className="pick">
                {grid.selection.can?.(row) !== false
                  && <input type="checkbox" aria-label={S.selectRow(grid.selection.name(row))} checked={grid.selection.has(row)} onChange={() => grid.selection?.toggle(row)} />}
              </span>
            )}
            {grid.columns.map((c) => (
              <span key={c.id} role="cell" data-label={c.label} className={`${c.num ? 'num right ' : ''}narrow-${c.narrow ?? 'meta'}`}>{c.cell(row)}</span>
            ))}
          </>
        )}
    </div>
  )
}) as <R>(props: RowProps<R> & { key?: string | number }) => ReactNode

/** Grid shows all its rows. */
export function Grid<R>({ rows, rowKey, cursor, onPoint, ...grid }: GridProps<R> & { rows: R[]; rowKey: (row: R) => string; cursor?: number; onPoint?: (index: number) => void }) {
  useEffect(() => {
    if (cursor !== undefined && cursor >= 0) document.querySelector('.row.at')?.scrollIntoView({ block: 'nearest' })
  }, [cursor])
  return (
    <div role="table" aria-label={grid.label} aria-rowcount={rows.length + 1} className="grid">
      <GridHead {...grid} />
      <div role="rowgroup">
        {rows.map((row, i) => <GridRow key={rowKey(row)} row={row} index={i} at={i === cursor} grid={grid} onPoint={onPoint} />)}
      </div>
    </div>
  )
}

