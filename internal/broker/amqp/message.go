package amqp

import (
	"fmt"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// Prefixes of attributes in headers. The first is that of the binding, which this package writes;
// the other is for clients that cannot use a colon in a name.
const (
	attributePrefix    = "cloudEvents:"
	altAttributePrefix = "cloudEvents_"
)

// A publication is one event as a message.
type publication struct {
	*broker.PendingSend
	id      string
	key     string
	message amqp091.Publishing
	body    *[]byte
}

// encodePublication encodes e as a message, in a body of the pool.
func (b *Broker) encodePublication(e *cloudevent.Event) *publication {
	body, _ := b.bodies.Get().(*[]byte) // the pool has no other type
	p := &publication{
		PendingSend: broker.NewPendingSend(),
		id:          e.ID,
		key:         b.cfg.routingKeyFor(e.Type),
		body:        body,
		message: amqp091.Publishing{
			ContentType:  cloudevent.ContentType,
			DeliveryMode: amqp091.Persistent,
			MessageId:    e.ID,
			Timestamp:    e.Time,
			Type:         e.Type,
		},
	}
	if b.cfg.Mode == cloudevent.Binary {
		p.message.ContentType = cloudevent.DataContentType
		p.message.Headers = make(amqp091.Table, 8)
		for name, value := range e.Attributes {
			p.message.Headers[attributePrefix+name] = value
		}
		*body = append((*body)[:0], e.DataOrNull()...)
	} else {
		*body = e.AppendJSON((*body)[:0])
	}
	p.message.Body = *body
	return p
}

// decodeDelivery decodes the event of a delivery.
func decodeDelivery(d *amqp091.Delivery) (cloudevent.Event, error) {
	findAttribute := func(name string) (string, bool) {
		for _, prefix := range []string{attributePrefix, altAttributePrefix} {
			if value := d.Headers[prefix+name]; value != nil {
				return formatHeader(value), true
			}
		}
		return "", false
	}
	return cloudevent.Decode(d.ContentType, findAttribute, d.Body)
}

// formatHeader returns the text of a header's value.
func formatHeader(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case time.Time: // the binding's native form, in seconds
		return v.UTC().Format(time.RFC3339)
	default:
		return strings.TrimSpace(fmt.Sprint(v))
	}
}
