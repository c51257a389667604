package amqp

import (
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// What the exchange and the queues are declared as.
const (
	durable    = true
	autoDelete = false
	internal   = false
	exclusive  = false
	noWait     = false
)

// onChannel runs declare on a channel of its own, because a refusal closes the
// channel. The code is the server's, or 0.
func onChannel(conn *amqp091.Connection, declare func(*amqp091.Channel) error) (code int, err error) {
	ch, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	if err = declare(ch); err == nil {
		return 0, ch.Close()
	}
	if reason, ok := errors.AsType[*amqp091.Error](err); ok {
		code = reason.Code
	}
	return code, explainError(err)
}

// declareExchange makes sure of the exchange. Who may not declare it can still
// use it if it is there.
func (b *Broker) declareExchange(conn *amqp091.Connection) error {
	exchange, kind := b.cfg.Exchange, string(b.cfg.ExchangeType)
	code, err := onChannel(conn, func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(exchange, kind, durable, autoDelete, internal, noWait, nil)
	})
	switch code {
	case amqp091.PreconditionFailed:
		return fmt.Errorf("exchange %q exists but is not durable with type %q: delete it, or set exchange or exchange_type to match: %w",
			exchange, kind, err)
	case amqp091.AccessRefused:
		if _, missing := onChannel(conn, func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclarePassive(exchange, kind, durable, autoDelete, internal, noWait, nil)
		}); missing != nil {
			return fmt.Errorf("exchange %q does not exist and user %q is not allowed to declare it: declare it, or grant the permission: %w",
				exchange, b.addr.uri.Username, missing)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("declare exchange %q: %w", exchange, err)
	}
	return nil
}

// declareQueue makes sure of a consumer's queue. One that others declared in
// another way, with a length limit for example, is taken as it is.
func (b *Broker) declareQueue(conn *amqp091.Connection, queue string) error {
	var args amqp091.Table
	if b.cfg.QueueType != "" {
		args = amqp091.Table{amqp091.QueueTypeArg: b.cfg.QueueType}
	}
	code, err := onChannel(conn, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(queue, durable, autoDelete, exclusive, noWait, args)
		return err
	})
	if code == amqp091.PreconditionFailed || code == amqp091.AccessRefused {
		_, err = onChannel(conn, func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclarePassive(queue, durable, autoDelete, exclusive, noWait, nil)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("declare queue %q: %w", queue, err)
	}
	return nil
}
