package nats

// Unanswered returns the number of publications that wait for the stream's answer.
func (b *Broker) Unanswered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sent)
}
