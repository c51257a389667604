// What views share: their parameters in the URL, keys, and the topics that they follow.
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useCallback, useEffect, useRef, useState } from 'react'
import { mergeParams, type Params } from '../lib/search'

/** useParamsInUrl returns the view's parameters, and how to change them. */
export function useParamsInUrl(): [Params, (change: Record<string, string | undefined>) => void] {
  const params = useSearch({ strict: false }) as Params
  const navigate = useNavigate()
  const change = useCallback((c: Record<string, string | undefined>) => {
    void navigate({ to: '.', search: ((old: Params) => mergeParams(old, c)) as never, replace: true })
  }, [navigate])
  return [params, change]
}

type Handlers = Record<string, (() => void) | undefined>
const stack: { current: Handlers }[] = []

/** pressed runs the handler of the combination that was registered last; false if there is none. */
export function pressed(combo: string): boolean {
  for (let i = stack.length - 1; i >= 0; i--) {
    const handler = stack[i]?.current[combo]
    if (handler) {
      handler()
      return true
    }
  }
  return false
}

/** useKeys handles keys while the component is shown. */
export function useKeys(handlers: Handlers): void {
  const ref = useRef(handlers)
  ref.current = handlers
  useEffect(() => {
    stack.push(ref)
    return () => {
      stack.splice(stack.indexOf(ref), 1)
    }
  }, [])
}

/** useRows moves a cursor over rows with j and k, and opens the row with Enter. */
export function useRows(count: number, open: (index: number) => void, toggle?: (index: number) => void): [number, (index: number) => void] {
  const [cursor, setCursor] = useState(-1)
  const at = Math.min(cursor, count - 1)
  useKeys({
    j: () => setCursor(Math.min(at + 1, count - 1)),
    k: () => setCursor(Math.max(at - 1, 0)),
    Enter: () => at >= 0 && open(at),
    o: () => at >= 0 && open(at),
    x: toggle && (() => at >= 0 && toggle(at)),
  })
  return [at, setCursor]
}

/** useLater returns the value after it has not changed for a while, so that typing does not ask the server per letter. */
export function useLater<T>(value: T, ms = 250): T {
  const [later, setLater] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setLater(value), ms)
    return () => clearTimeout(timer)
  }, [value, ms])
  return later
}

/** useLasting reports whether a condition has held at each render for so long. */
export function useLasting(on: boolean, ms: number): boolean {
  const since = useRef<number>(undefined)
  if (!on) since.current = undefined
  else since.current ??= Date.now()
  return since.current !== undefined && Date.now() - since.current >= ms
}
