// An edit of labels and spec. The difference is shown before it is sent, and it
// is sent for the version that was shown: another person's change is never lost.
import { FleetError } from '@fleetloop/client'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { fleet } from '../api/client'
import { resourceQuery } from '../api/queries'
import type { Kind, Resource } from '../api/types'
import { command } from '../lib/cli'
import { diffLines, foldLines } from '../lib/diff'
import { formatLabels, parseLabels } from '../lib/labels'
import { sortKeys, toYaml } from '../lib/yaml'
import { S } from '../strings'
import { Command, Failure, Notice } from '../ui/basics'
import { Dialog } from '../ui/dialog'
import { Diff } from '../ui/diff'
import { say } from '../ui/toast'

interface Version { resource: Resource; etag: string }

export default function Edit({ kind, resource, etag, onClose }: { kind: Kind; resource: Resource; etag: string; onClose: () => void }) {
  const queries = useQueryClient()
  const [base, setBase] = useState<Version>({ resource, etag })
  const [labels, setLabels] = useState(formatLabels(resource.labels))
  const [spec, setSpec] = useState(JSON.stringify(resource.spec, null, 2))
  const [review, setReview] = useState(false)

  const parsed = parse(labels, spec)
  const changed = 'error' in parsed ? {} : {
    ...(JSON.stringify(sortKeys(parsed.labels)) === JSON.stringify(sortKeys(base.resource.labels ?? {})) ? {} : { labels: parsed.labels }),
    ...(JSON.stringify(sortKeys(parsed.spec)) === JSON.stringify(sortKeys(base.resource.spec)) ? {} : { spec: parsed.spec }),
  }
  const empty = Object.keys(changed).length === 0
  const text = (l: unknown, s: unknown) => toYaml({ labels: sortKeys(l ?? {}), spec: sortKeys(s) })
  const lines = 'error' in parsed ? [] : foldLines(diffLines(text(base.resource.labels, base.resource.spec), text(parsed.labels, parsed.spec)))

  const save = useMutation({
    mutationFn: async () => {
      const path = { id: resource.id }
      let { etag } = base
      for (let tries = 1; ; tries++) {
        try {
          return (await fleet.PATCH(`/${kind}/{id}`, { params: { path, header: etag ? { 'If-Match': etag } : {} }, body: changed })).data
        } catch (err) {
          if (!isStale(err) || tries === 5) throw err
          // A report of an adapter changes the version, too. Only a change of what is edited here counts.
          const fresh = await fleet.GET(`/${kind}/{id}`, { params: { path } })
          if (editable(fresh.data) !== editable(base.resource)) throw err
          etag = fresh.etag
        }
      }
    },
    onSuccess: (answer) => {
      void queries.invalidateQueries({ queryKey: [kind] })
      say(S.saved(answer.name, answer.generation))
      onClose()
    },
  })
  const stale = isStale(save.error)
  const reload = async () => {
    const fresh = await queries.fetchQuery({ ...resourceQuery(kind, resource.id), staleTime: 0 })
    setBase({ resource: fresh.body, etag: fresh.etag })
    save.reset()
  }
  const noun = kind === 'clusters' ? 'cluster' : 'nodepool'
  const cmd = command('fleetloop', 'patch', noun, resource.name,
    ...('spec' in changed ? ['--spec', JSON.stringify(changed.spec)] : []),
    ...('labels' in changed ? labelFlags(base.resource.labels ?? {}, changed.labels ?? {}) : []))

  return (
    <Dialog title={S.editOf(resource.name)} onClose={onClose} wide>
      <form onSubmit={(e) => {
        e.preventDefault()
        if (!review) setReview(true)
        else if (!save.isPending) save.mutate()
      }}>
        {!review
          ? (
            <>
              <label className="field"><span>{S.labels} <span className="dim">{S.onePerLine}</span></span><textarea className="mono" rows={4} spellCheck={false} value={labels} onChange={(e) => setLabels(e.target.value)} /></label>
              <label className="field"><span>{S.specJson}</span><textarea className="mono" rows={14} spellCheck={false} value={spec} onChange={(e) => setSpec(e.target.value)} /></label>
              {'error' in parsed && <div role="alert"><Notice icon="warn" tone="bad" title={parsed.error} /></div>}
            </>
          )
          : (
            <>
              <p className="dim">{S.reviewHint(base.resource.generation)}</p>
              <Diff lines={lines} label={S.difference} />
              <div className="field"><span className="dim">{S.sameInTerminal}</span><Command cmd={cmd} /></div>
              {stale
                ? <div role="alert"><Notice icon="warn" tone="warn" title={S.changedMeanwhile}>{S.changedMeanwhileHint} <button type="button" className="button" onClick={() => void reload()}>{S.compareAgain}</button></Notice></div>
                : save.error && <Failure error={save.error} />}
            </>
          )}
        <footer>
          <button type="button" className="button" onClick={() => (review ? setReview(false) : onClose())}>{S.back}</button>
          <button type="submit" className="button primary" disabled={'error' in parsed || empty || save.isPending || stale}>
            {review ? (save.isPending ? S.waitingForServer : S.send) : empty ? S.nothingChanged : S.review}
          </button>
        </footer>
      </form>
    </Dialog>
  )
}

const isStale = (error: unknown) => error instanceof FleetError && error.status === 412
const editable = (r: Resource) => JSON.stringify(sortKeys({ labels: r.labels ?? {}, spec: r.spec }))

function parse(labels: string, spec: string): { labels: Record<string, string>; spec: Record<string, unknown> } | { error: string } {
  const read = parseLabels(labels)
  if ('error' in read) return read
  try {
    const value: unknown = JSON.parse(spec)
    if (value === null || typeof value !== 'object' || Array.isArray(value)) return { error: S.specNotObject }
    return { labels: read.labels, spec: value as Record<string, unknown> }
  } catch (err) {
    return { error: S.specNotJson(err instanceof Error ? err.message : String(err)) }
  }
}

function labelFlags(before: Record<string, string>, after: Record<string, string>): string[] {
  const set = Object.entries(after).filter(([k, v]) => before[k] !== v).flatMap(([k, v]) => ['--label', `${k}=${v}`])
  return [...set, ...Object.keys(before).filter((k) => !(k in after)).flatMap((k) => ['--label', `${k}-`])]
}
