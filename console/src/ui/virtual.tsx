// A table of any length with a constant number of rows in the document.
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useMemo, useRef } from 'react'
import { GridHead, type GridProps, GridRow } from './grid'
import { useNarrow } from './prefs'

export interface VirtualProps<R> extends GridProps<R> {
  count: number
  row: (index: number) => R | undefined
  /** Called with the first and the last row that are shown. */
  onRange: (first: number, last: number) => void
  cursor: number
  onPoint: (index: number) => void
}

export function VirtualGrid<R>({ count, row, onRange, cursor, onPoint, label, columns, sort, onSort, selection }: VirtualProps<R>) {
  const grid = useMemo(() => ({ label, columns, sort, onSort, selection }), [label, columns, sort, onSort, selection])
  const scroller = useRef<HTMLDivElement>(null)
  const narrow = useNarrow()
  const height = narrow ? 64 : 34
  const virtual = useVirtualizer({ count, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 10 })
  useEffect(() => virtual.measure(), [height, virtual])
  useEffect(() => {
    if (cursor >= 0) virtual.scrollToIndex(cursor, { align: 'auto' })
  }, [cursor, virtual])

  const shown = [...virtual.getVirtualItems()]
  const first = shown[0]?.index ?? 0
  const last = shown[shown.length - 1]?.index ?? 0
  // A row that comes into view takes the elements of one that left it. Their order changes when the list is at rest,
  // because a browser lays out what moves, and at once if one of them has the focus, because Tab follows the order.
  const slots = useRef(1)
  slots.current = Math.max(slots.current, shown.length)
  const slotOf = (index: number) => index % slots.current
  if (virtual.isScrolling && !scroller.current?.querySelector(':focus')) shown.sort((a, b) => slotOf(a.index) - slotOf(b.index))
  useEffect(() => onRange(first, last), [first, last, onRange])

  return (
    <div role="table" aria-label={label} aria-rowcount={count + 1} className="grid virtual">
      <GridHead {...grid} />
      <div role="rowgroup" className="scroller" ref={scroller} tabIndex={0} aria-label={label}>
        <div role="presentation" className="space" style={{ height: virtual.getTotalSize() }}>
          {shown.map((item) => (
            <GridRow key={slotOf(item.index)} row={row(item.index)} index={item.index} at={item.index === cursor} grid={grid} onPoint={onPoint}
              top={item.start} height={height} />
          ))}
        </div>
      </div>
    </div>
  )
}
