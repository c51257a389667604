package pgstore

import "time"

// PingEvery sets the ping interval of a listener, before it runs.
func (l *Listener) PingEvery(d time.Duration) { l.pingEvery = d }

// ByIndex makes the following statements use indexes.
const ByIndex = byIndex
