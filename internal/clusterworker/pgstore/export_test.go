package pgstore

import "time"

// PingEvery has a listener, before it runs, notify itself that often.
func (l *Listener) PingEvery(d time.Duration) { l.pingEvery = d }
