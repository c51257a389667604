// A table of any length with a constant number of rows in the document.
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useMemo, useRef } from 'react'
import { assignSlots } from '../lib/slots'
import { GridHead, type GridProps, GridRow } from './grid'
import { useNarrow } from './prefs'

// Rows that reuse elements cannot keep a checkbox: the focus would stay on it for another row.
export interface VirtualProps<R> extends Omit<GridProps<R>, 'selection'> {
  count: number
  row: (index: number) => R | undefined
  rowKey: (row: R) => string
  /** Called with the first and the last row that are shown. */
  onRange: (first: number, last: number) => void
  cursor: number
  onPoint: (index: number) => void
}

export function VirtualGrid<R>({ count, row, rowKey, onRange, cursor, onPoint, label, columns, sort, onSort }: VirtualProps<R>) {
  const grid = useMemo(() => ({ label, columns, sort, onSort }), [label, columns, sort, onSort])
  const scroller = useRef<HTMLDivElement>(null)
  const narrow = useNarrow()
  const height = narrow ? 64 : 34
  const virtual = useVirtualizer({ count, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 10 })
  useEffect(() => virtual.measure(), [height, virtual])
  useEffect(() => {
    if (cursor >= 0) virtual.scrollToIndex(cursor, { align: 'auto' })
  }, [cursor, virtual])

  const slots = useRef(new Map<string, number>())
  const shown = virtual.getVirtualItems().map((item) => {
    const value = row(item.index)
    return { ...item, value, id: value ? rowKey(value) : `#${item.index}` }
  })
  const first = shown[0]?.index ?? 0
  const last = shown[shown.length - 1]?.index ?? 0
  // A row that comes into view takes the elements of one that left it. A browser lays out again what changes its place
  // in the document, so elements are put in the order of the rows only when the list is at rest, or when one of them has
  // the focus: Tab follows the order.
  slots.current = assignSlots(shown.map((r) => r.id), slots.current)
  const slotOf = (id: string) => slots.current.get(id) ?? 0
  if (virtual.isScrolling && !scroller.current?.querySelector(':focus')) shown.sort((a, b) => slotOf(a.id) - slotOf(b.id))
  useEffect(() => onRange(first, last), [first, last, onRange])

  return (
    <div role="table" aria-label={label} aria-rowcount={count + 1} className="grid virtual">
      <GridHead {...grid} />
      <div role="rowgroup" className="scroller" ref={scroller} tabIndex={0} aria-label={label}>
        <div role="presentation" className="space" style={{ height: virtual.getTotalSize() }}>
          {shown.map(({ id, value, index, start }) => (
            <GridRow key={slotOf(id)} row={value} index={index} at={index === cursor} grid={grid} onPoint={onPoint} top={start} height={height} />
          ))}
        </div>
      </div>
    </div>
  )
}
