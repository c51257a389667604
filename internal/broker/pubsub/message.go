package pubsub

import (
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

const (
	contentTypeAttribute = "content-type"
	attributePrefix      = "ce-"
	// mostAttributes is the maximum number of attributes of a message.
	mostAttributes = 9
	// overhead is an upper estimate of a message's size in a request without its body.
	overhead = 1024
)

// A publication is one event as a message.
type publication struct {
	*broker.PendingSend
	message *pubsubpb.PubsubMessage
	size    int
	body    *[]byte
}

// encodePublication encodes e as a message, in a body of the pool. The event's attributes are the
// message's attributes in both modes, so that subscriptions can filter by them.
func (b *Broker) encodePublication(e *cloudevent.Event) *publication {
	body, _ := b.bodies.Get().(*[]byte) // the pool has no other type
	attributes := make(map[string]string, mostAttributes)
	size := overhead
	for name, value := range e.Attributes {
		attributes[attributePrefix+name] = value
		size += len(value)
	}
	if b.cfg.Mode == cloudevent.Binary {
		attributes[contentTypeAttribute] = cloudevent.DataContentType
		*body = append((*body)[:0], e.DataOrNull()...)
	} else {
		attributes[contentTypeAttribute] = cloudevent.ContentType
		*body = e.AppendJSON((*body)[:0])
	}
	p := &publication{
		PendingSend: broker.NewPendingSend(),
		message:     &pubsubpb.PubsubMessage{Data: *body, Attributes: attributes},
		size:        size + len(*body),
		body:        body,
	}
	if b.cfg.Ordering {
		p.message.OrderingKey = e.Subject
	}
	return p
}

// decodeMessage decodes the event of a message.
func decodeMessage(attributes map[string]string, data []byte) (cloudevent.Event, error) {
	findAttribute := func(name string) (string, bool) {
		value, found := attributes[attributePrefix+name]
		return value, found
	}
	return cloudevent.Decode(attributes[contentTypeAttribute], findAttribute, data)
}
