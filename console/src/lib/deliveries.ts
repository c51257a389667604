// What became of a change event at its sinks.
import type { ChangeDelivery } from '../api/types'
import { command, flag } from './cli'

/** mayRepeat reports whether a delivery can be sent again: it is over, and the sink wants such events. */
export function mayRepeat(d: ChangeDelivery): boolean {
  return d.state === 'delivered' || d.state === 'rejected' || d.state === 'expired'
}

/** stateOf returns the state, or `retrying` for a pending delivery that has failed. */
export function stateOf(d: ChangeDelivery): string {
  return d.state === 'pending' && d.error ? 'retrying' : d.state
}

/** errorOf returns the error of the last attempt with the status of the sink's answer. */
export function errorOf(d: ChangeDelivery): string {
  return d.error ? d.error.replaceAll('_', ' ') + (d.http_status ? ` (HTTP ${d.http_status})` : '') : ''
}

export function deliveriesCommand(id: string): string {
  return command('fleetloop', 'changes', 'deliveries', flag('event', id))
}

export function resendCommand(id: string, sink: string, reason: string): string {
  return command('fleetloop', 'changes', 'resend', id, flag('sink', sink), flag('reason', reason))
}
