package nats

// Unanswered is how many publications wait for the stream's answer.
func (b *Broker) Unanswered() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sent)
}
