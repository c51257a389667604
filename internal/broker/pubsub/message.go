package pubsub

import (
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

const (
	contentTypeAttribute = "content-type"
	attributePrefix      = "ce-"
	// mostAttributes is how many attributes a message has at most.
	mostAttributes = 9
	// overhead is what a message takes in a request beside its body, or more.
	overhead = 1024
)

// A publication is one event as a message.
type publication struct {
	*broker.Send
	message *pubsubpb.PubsubMessage
	size    int
	body    *[]byte
}

// newPublication lays e out as a message, in a body of the pool. The event's
// attributes are the message's attributes in both modes, so that subscriptions
// can filter by them.
func (b *Broker) newPublication(e *cloudevent.Event) *publication {
	body, _ := b.bodies.Get().(*[]byte) // the pool holds nothing else
	attributes := make(map[string]string, mostAttributes)
	size := overhead
	for name, value := range e.Attributes {
		attributes[attributePrefix+name] = value
		size += len(value)
	}
	if b.cfg.Mode == cloudevent.Binary {
		attributes[contentTypeAttribute] = cloudevent.DataContentType
		*body = append((*body)[:0], e.Body()...)
	} else {
		attributes[contentTypeAttribute] = cloudevent.ContentType
		*body = e.AppendJSON((*body)[:0])
	}
	p := &publication{
		Send:    broker.NewSend(),
		message: &pubsubpb.PubsubMessage{Data: *body, Attributes: attributes},
		size:    size + len(*body),
		body:    body,
	}
	if b.cfg.Ordering {
		p.message.OrderingKey = e.Subject
	}
	return p
}

// decodeMessage reads the event in a message.
func decodeMessage(attributes map[string]string, data []byte) (cloudevent.Event, error) {
	return cloudevent.Decode(attributes[contentTypeAttribute], func(name string) (string, bool) {
		v, ok := attributes[attributePrefix+name]
		return v, ok
	}, data)
}
