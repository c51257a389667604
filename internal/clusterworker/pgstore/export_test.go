package pgstore

import "time"

// PingEvery has a listener, before it runs, notify itself that often.
func (l *Listener) PingEvery(d time.Duration) { l.pingEvery = d }

// ByIndex is said before statements that are to find their rows along indexes.
const ByIndex = byIndex
