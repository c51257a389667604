// The shapes that the page reads: those of the fleet API, generated from its
// OpenAPI document, and those of the console server.
import type { Schemas } from '@fleetloop/client'

export type { Schemas } from '@fleetloop/client'
export type Resource = Schemas['Resource']
export type Phase = Schemas['Phase']
export type ClusterSync = Schemas['ClusterSync']
export type SyncState = Schemas['SyncState']
export type ChangeEvent = Schemas['ChangeEvent']
export type ChangeDelivery = Schemas['ChangeDelivery']
export type Kind = 'clusters' | 'nodepools'

/** Page is a list of the console server. */
export interface Page<T> { items: T[]; continue?: string }

/** Permission is what the console server says that a person may do on a host cluster. */
export interface Permission { allowed: boolean; reason?: string }

export interface Host {
  name: string
  writes: boolean
  why_not?: string
  /** Whether the console can read the audit of executions. */
  audit?: boolean
}

/** Decision is what the rules of a SentinelConfig say about a resource. */
export interface Decision {
  host: string
  namespace: string
  name: string
  endpoint: string
  state: 'due' | 'waiting' | 'not_watched' | 'invalid' | 'not_found' | 'error'
  message: string
  next?: string
  inputs?: { generation: number; observed_generation: number; phase: string; ready: boolean; last_updated_time?: string; max_age_seconds: number }
}

/** AuditEvent is an event of an execution's audit. */
export interface AuditEvent {
  position: number
  at: string
  type: string
  actor: string
  outcome?: string
  reason?: string
  plan_hash?: string
}

export interface Session {
  signed_in: boolean
  mode: 'none' | 'token' | 'oidc'
  user?: { name: string; tenant?: string; roles?: string[] }
  csrf?: string
  expires?: string
  version?: string
  hosts?: Host[]
  demo_users?: { name: string; role: string }[]
  links?: { docs?: string }
}

export interface Execution {
  host: string
  namespace: string
  name: string
  created: string
  action: string
  target?: string
  parameters?: Record<string, unknown>
  reason?: string
  requested_by?: string
  /** The assistant that made the request for the user. */
  requested_by_agent?: string
  environment?: string
  phase: string
  phase_since?: string
  outcome?: string
  reason_detail?: string
  message?: string
  dry_run?: boolean
  expires?: string
  impact?: string
  plan_hash?: string
  plan?: {
    diff?: string
    resources_affected?: number
    replicas_changed?: string
    steps?: { verb?: string; resource?: string; namespace?: string; name?: string; description?: string }[]
  }
  rollback?: { available: boolean; action?: string; reason?: string }
  rollback_of?: string
  policy?: {
    name?: string
    allowed: boolean
    required_approval?: boolean
    required_dry_run?: boolean
    violations?: string[]
    warnings?: string[]
    mode?: string
    evaluated?: string
  }
  dry_run_result?: { performed: boolean; success: boolean; warnings?: string[]; errors?: string[] }
  checks?: Record<'parameters' | 'permissions' | 'target', boolean>
  pre_conditions?: ConditionResult[]
  post_conditions?: ConditionResult[]
  approval?: {
    required: number
    received: number
    groups?: string[]
    not_requester?: boolean
    decisions: { approver: string; decision: string; reason?: string; current: boolean }[]
  }
  phases?: { phase: string; at: string }[]
  job?: string
  /** The end of the log of an action that has ended. */
  log?: string
  undelivered_change_events?: number
  /** The change events that wait for at least one sink. */
  waiting_change_events?: { action: string; at: string; sinks: string[] }[]
  can?: Partial<Record<string, Permission>>
  command?: Partial<Record<string, string>>
  object?: unknown
}

export interface ConditionResult { type: string; passed: boolean; evaluated?: boolean; required?: boolean; message?: string }

export interface EmergencyStop {
  stopped: boolean
  by?: string
  reason?: string
  since?: string
  can?: Permission
  command?: { stop?: string; resume?: string }
}

export interface FaultNode {
  host?: string
  name: string
  stage: string
  phase?: string
  since: string
  reason?: string
  fault_code?: string
  session?: string
  remedy?: string
  deadline?: string
  pods_left?: number
  blocking?: { pod: string; namespace?: string; blocked_by?: string; budget?: string; message?: string; since?: string }[]
  faults?: { source: string; check: string; entity?: string; error_codes?: string[]; fatal?: boolean; message?: string; detected?: string }[]
  history?: { at: string; action: string; message?: string; outcome?: string }[]
  undelivered_change_events?: number
  deliveries?: SinkDelivery[]
  /** True if the node waits for pods, for the budget or for a person. */
  waits: boolean
  can?: Partial<Record<string, Permission>>
  command?: Partial<Record<string, string>>
}

/** SinkDelivery is the delivery of the change events of a node to one sink. */
export interface SinkDelivery {
  sink: string
  state: 'delivered' | 'pending' | 'retrying' | 'rejected'
  /** The number of events that wait for the sink. */
  waiting: number
  /** The number of events that the sink will not get: rejected, expired or dropped. */
  lost: number
  delivered_at?: string
  error?: string
  failed_at?: string
}

export interface NodeList {
  budgets?: { pool?: string; limit?: number; used: number; blocked_since?: string }[]
  items: FaultNode[]
  as_of?: string
}

export interface Sentinel {
  host?: string
  namespace: string
  name: string
  ready: boolean
  message?: string
  resource_type?: string
  selector?: string
  resources_watched: number
  events_published: number
  last_poll?: string
  shards?: { index: number; holder?: string; resources_watched?: number; lag_seconds?: number }[]
}

export interface CoverageFinding {
  others?: boolean
  resource_type?: string
  selector?: string
  shard?: string
  message?: string
  count?: number
  examples?: { id: string; name: string }[]
  sentinels?: string[]
}

export interface SentinelList { items: Sentinel[]; as_of?: string }
