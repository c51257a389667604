import { describe, expect, test } from 'vitest'
import type { ChangeDelivery } from '../src/api/types'
import { deliveriesCommand, errorOf, mayRepeat, resendCommand, stateOf } from '../src/lib/deliveries'

const delivery = (more: Partial<ChangeDelivery>): ChangeDelivery => ({ sink: 'chat', type: 'slack', state: 'pending', attempts: 0, ...more })

describe('deliveries', () => {
  test.each([
    ['pending', undefined, 'pending', false], ['pending', 'timeout', 'retrying', false], ['delivered', undefined, 'delivered', true],
    ['skipped', undefined, 'skipped', false], ['rejected', 'client_error', 'rejected', true], ['expired', 'dns', 'expired', true],
  ] as const)('%s with the error %s is shown as %s', (state, error, shown, repeat) => {
    expect(stateOf(delivery({ state, error }))).toBe(shown)
    expect(mayRepeat(delivery({ state, error }))).toBe(repeat)
  })

  test('an error has the status of the answer, if there was one', () => {
    expect(errorOf(delivery({ error: 'server_error', http_status: 503 }))).toBe('server error (HTTP 503)')
    expect(errorOf(delivery({ error: 'timeout' }))).toBe('timeout')
    expect(errorOf(delivery({}))).toBe('')
  })

  test('commands do the same', () => {
    expect(deliveriesCommand('cluster/1/x')).toBe('fleetloop changes deliveries --event=cluster/1/x')
    expect(resendCommand('0f', 'on-call', "it's new")).toBe(`fleetloop changes resend 0f --sink=on-call '--reason=it'\\''s new'`)
    expect(resendCommand('0f', 'on-call', '')).toBe('fleetloop changes resend 0f --sink=on-call')
  })
})
