// Dialogs, and actions that count as done only after the server confirmed them.
import { useMutation } from '@tanstack/react-query'
import { type ReactNode, useEffect, useId, useRef, useState } from 'react'
import { S } from '../strings'
import { Command, Failure } from './basics'
import { Icon, type IconName } from './icons'
import { say } from './toast'

export function Dialog({ title, onClose, children, wide }: { title: string; onClose: () => void; children: ReactNode; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const dialog = ref.current
    dialog?.showModal()
    return () => dialog?.close()
  }, [])
  return (
    <dialog ref={ref} className={wide ? 'wide' : undefined} aria-labelledby={id}
      onCancel={(e) => {
        e.preventDefault()
        onClose()
      }}
      onClick={(e) => e.target === ref.current && onClose()}>
      <div className="dialog-body">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" className="copy" aria-label={S.close} onClick={onClose}><Icon name="close" /></button>
        </header>
        {children}
      </div>
    </dialog>
  )
}

export interface Input { reason: string; until?: string }

export interface ActionSpec {
  label: string
  icon?: IconName
  tone?: 'primary' | 'danger'
  title: string
  /** What happens, in a sentence; shown before the person confirms. */
  explain?: ReactNode
  reason: 'required' | 'optional' | 'none'
  /** Offers when the action ends by itself. */
  expiry?: boolean
  command?: string | ((input: Input) => string)
  run: (input: Input) => Promise<unknown>
  done: string
}

const EXPIRIES = [['', S.never], ['1h', S.hours(1)], ['4h', S.hours(4)], ['24h', S.hours(24)], ['168h', S.days(7)]] as const

/** Action is a button that asks for a reason and shows the equivalent command before it sends anything. */
export function Action({ spec, disabled, why }: { spec: ActionSpec; disabled?: boolean; why?: string }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <button type="button" className={`button ${spec.tone ?? ''}`} disabled={disabled} title={disabled ? why : undefined} onClick={() => setOpen(true)}>
        {spec.icon && <Icon name={spec.icon} />}{spec.label}
      </button>
      {open && <ActionDialog spec={spec} onClose={() => setOpen(false)} />}
    </>
  )
}

function ActionDialog({ spec, onClose }: { spec: ActionSpec; onClose: () => void }) {
  const [reason, setReason] = useState('')
  const [hours, setHours] = useState('')
  const id = useId()
  const until = hours ? new Date(Math.floor(Date.now() / 1000) * 1000 + Number.parseInt(hours) * 3_600_000).toISOString().replace('.000Z', 'Z') : undefined
  const input: Input = { reason: reason.trim(), until }
  const mutation = useMutation({
    mutationFn: () => spec.run(input),
    onSuccess: () => {
      say(spec.done)
      onClose()
    },
  })
  const cmd = typeof spec.command === 'function' ? spec.command({ reason: input.reason, until: hours }) : spec.command
  return (
    <Dialog title={spec.title} onClose={onClose}>
      <form onSubmit={(e) => {
        e.preventDefault()
        if (!mutation.isPending) mutation.mutate()
      }}>
        {spec.explain && <div className="explain">{spec.explain}</div>}
        {spec.reason !== 'none' && (
          <label className="field" htmlFor={`${id}r`}>
            <span>{S.reason}{spec.reason === 'optional' && <span className="dim"> {S.optional}</span>}</span>
            <textarea id={`${id}r`} rows={2} maxLength={1024} autoFocus required={spec.reason === 'required'} value={reason} onChange={(e) => setReason(e.target.value)} placeholder={S.reasonHint} />
          </label>
        )}
        {spec.expiry && (
          <label className="field" htmlFor={`${id}u`}>
            <span>{S.endsBy}</span>
            <select id={`${id}u`} value={hours} onChange={(e) => setHours(e.target.value)}>
              {EXPIRIES.map(([value, label]) => <option key={value} value={value}>{label}</option>)}
            </select>
          </label>
        )}
        {cmd && <div className="field"><span className="dim">{S.sameInTerminal}</span><Command cmd={cmd} /></div>}
        {mutation.error && <Failure error={mutation.error} />}
        <footer>
          <button type="button" className="button" onClick={onClose}>{S.back}</button>
          <button type="submit" className={`button ${spec.tone ?? 'primary'}`} disabled={mutation.isPending || (spec.reason === 'required' && !input.reason)}>
            {mutation.isPending ? S.waitingForServer : spec.label}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}
