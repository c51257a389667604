package nats

// Unanswered returns the number of publications that wait for the stream's answer.
func (b *Broker) Unanswered() int {
	b.unanswered.mu.Lock()
	defer b.unanswered.mu.Unlock()
	return len(b.unanswered.sent)
}
