// Package adapter is a kit for writing adapters: controllers that receive CloudEvents about the
// resources of a fleet, do one part of the work on each, and report its status to the fleet API.
//
// The author writes a [Reconciler]. It makes the outside world match the spec of a resource, and
// returns a report:
//
//	reconcile := func(ctx context.Context, r adapter.Resource) (adapter.Report, error) {
//		if r.Deleting() {
//			return adapter.Finalized("Registry is deleted"), deleteRegistry(ctx, r.ID)
//		}
//		if !r.IsAvailable("validation") {
//			return adapter.Waiting("Waiting for validation"), nil
//		}
//		return adapter.Available("Registry exists"), ensureRegistry(ctx, r.ID, r.Spec)
//	}
//	a, err := adapter.New(adapter.Config{Name: "registry"}, adapter.ReconcilerFunc(reconcile), adapter.Deps{Log: log})
//	if err != nil {
//		return err
//	}
//	return a.Run(ctx)
//
// The broker and the fleet API come from the environment, as for the sentinel: BROKER_TYPE and the
// other BROKER_* variables, HYPERFLEET_API_ENDPOINT, and HYPERFLEET_API_TOKEN or
// HYPERFLEET_API_TOKEN_FILE. [Config] overrides the most common ones.
//
// # Guarantees
//
//   - Every evaluation ends in a report with the observed generation and time, also if nothing was
//     to do and if Reconcile failed. Without it the sentinel would repeat the event without end.
//   - An event is acknowledged after the report of an evaluation that began after its arrival is
//     stored. It is also acknowledged if it is no event about a resource of the adapter, if the
//     resource no longer exists, or if the API has a newer report. Otherwise it is returned to the
//     broker, or dead-lettered.
//   - An event that names a generation is returned until the API has that generation.
//   - One process never reconciles the same resource twice at the same time. An event that arrives
//     meanwhile waits; a newer one replaces it. The resource is read after the wait, so the newest
//     spec wins. Several processes can share a subscription; the API discards the older report.
//   - An event that was handled is acknowledged again without an evaluation: one with the same id,
//     or for a generation older than the one reported last. The memory is that of the process, so a
//     restart can repeat an evaluation. Reconcile must be idempotent.
//   - When Run is stopped, Reconcile has Config.StopTimeout to return; a finished one is still
//     reported. Events without a result return to the broker.
//
// # Retries and dead letters
//
// After an error of Reconcile the event is delivered again, after a delay that doubles from
// Config.RetryDelay to Config.MaxRetryDelay. After Config.MaxAttempts, or an error marked by
// [Permanent], the report has Health False, and the event is dead-lettered by the means of the broker:
//
//   - RabbitMQ moves it to the dead-letter exchange of the queue, which a policy or the argument
//     x-dead-letter-exchange sets, and otherwise drops it.
//   - NATS JetStream publishes the advisory
//     $JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.<stream>.<subscription> with the sequence number.
//     The stream keeps the message until its maximum age.
//   - Pub/Sub forwards it to the dead-letter topic of the subscription when the maximum of delivery
//     attempts of its dead-letter policy is reached; until then it is delivered again. Without a
//     policy it is dropped.
//
// A dropped event is no lost work: the sentinel publishes the next one after its maximum age. Errors
// of the fleet API do not count as attempts; the event is delivered again until the API answers.
//
// # Deletion
//
// A resource that is being deleted stays until every required adapter has reported [Finalized]. To
// remove an adapter, see [Adapter.Retire].
package adapter
