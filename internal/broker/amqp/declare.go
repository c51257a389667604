package amqp

import (
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Arguments of the declarations of the exchange and the queues.
const (
	durable    = true
	autoDelete = false
	internal   = false
	exclusive  = false
	noWait     = false
)

// runOnNewChannel runs declare on a separate channel, because a refusal closes the channel.
// replyCode is the server's, or 0.
func runOnNewChannel(
	conn *amqp091.Connection, declare func(*amqp091.Channel) error,
) (replyCode int, err error) {
	ch, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	err = declare(ch)
	if err == nil {
		return 0, ch.Close()
	}
	if reason, ok := errors.AsType[*amqp091.Error](err); ok {
		replyCode = reason.Code
	}
	return replyCode, toOneLineError(err)
}

// declareExchange declares the exchange. Without the right to declare it, an existing exchange is
// used.
func (b *Broker) declareExchange(conn *amqp091.Connection) error {
	exchange, kind := b.cfg.Exchange, string(b.cfg.ExchangeType)
	code, err := runOnNewChannel(conn, func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(exchange, kind, durable, autoDelete, internal, noWait, nil)
	})
	switch code {
	case amqp091.PreconditionFailed:
		return fmt.Errorf("exchange %q exists but is not durable with type %q: delete it, or set exchange or exchange_type to match: %w",
			exchange, kind, err)
	case amqp091.AccessRefused:
		_, missing := runOnNewChannel(conn, func(ch *amqp091.Channel) error {
			return ch.ExchangeDeclarePassive(exchange, kind, durable, autoDelete, internal, noWait, nil)
		})
		if missing != nil {
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

// declareQueue declares a consumer's queue. A queue that exists with other arguments, such as a
// length limit, is used unchanged.
func (b *Broker) declareQueue(conn *amqp091.Connection, queue string) error {
	var args amqp091.Table
	if b.cfg.QueueType != "" {
		args = amqp091.Table{amqp091.QueueTypeArg: b.cfg.QueueType}
	}
	code, err := runOnNewChannel(conn, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(queue, durable, autoDelete, exclusive, noWait, args)
		return err
	})
	if code == amqp091.PreconditionFailed || code == amqp091.AccessRefused {
		_, err = runOnNewChannel(conn, func(ch *amqp091.Channel) error {
			_, err := ch.QueueDeclarePassive(queue, durable, autoDelete, exclusive, noWait, nil)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("declare queue %q: %w", queue, err)
	}
	return nil
}
