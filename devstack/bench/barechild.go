package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	amqp091 "github.com/rabbitmq/amqp091-go"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// bareChildArgument is the first argument of a bare child process.
const bareChildArgument = "bare-child"

// barePageSize is the sentinel's default.
const barePageSize = "500"

// A fleetReader reads all pages of a fleet, as a sentinel must at least do.
type fleetReader struct {
	endpoint  string
	publisher *pipelinedPublisher // nil only reads
	topic     string
	published int
}

// runBareChild runs the bare counterpart of a sentinel in this process, so that a benchmark can measure only its
// usage. The arguments are the fleet's endpoint, and the URL and the topic of a RabbitMQ. Without a URL it only
// walks the tokens of the pages.
//
// It reads the whole fleet once for each line on its standard input, and answers with its usage so far.
func runBareChild(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("run a bare child: want an endpoint, a broker and a topic, got %d arguments", len(args))
	}
	r := &fleetReader{endpoint: args[0], topic: args[2]}
	if broker := args[1]; broker != "" {
		conn, err := amqp091.Dial(broker)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // all events are confirmed
		if r.publisher, err = newPipelinedPublisher(conn, publishWindow); err != nil {
			return err
		}
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := r.readAndOptionallyPublishFleet(ctx); err != nil {
			return err
		}
		used, err := measureUsage()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s %d %d %d\n", lineUsed, used.CPU, used.Peak, r.published); err != nil {
			return err
		}
	}
	return nil
}

// readAndOptionallyPublishFleet reads all pages, the next one while it handles one.
func (r *fleetReader) readAndOptionallyPublishFleet(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages, failed := make(chan []byte, 1), make(chan error, 1)
	go func() {
		defer close(pages)
		failed <- r.fetchPages(ctx, pages)
	}()
	for page := range pages {
		if err := r.publishPageOrCountTokens(ctx, page); err != nil {
			return err
		}
	}
	if r.publisher != nil {
		if err := r.publisher.awaitConfirms(); err != nil {
			return err
		}
	}
	return <-failed
}

// fetchPages sends the pages to a channel.
func (r *fleetReader) fetchPages(ctx context.Context, pages chan<- []byte) error {
	from := ""
	for {
		query := url.Values{"limit": {barePageSize}}
		if from != "" {
			query.Set("continue", from)
		}
		page, err := fetchBodyOfAnyStatus(ctx, r.endpoint+v1.BasePath+"/"+v1.CollectionClusters+"?"+query.Encode())
		if err != nil {
			return err
		}
		select {
		case pages <- page:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if from = findContinueToken(page); from == "" {
			return nil
		}
	}
}

func fetchBodyOfAnyStatus(ctx context.Context, address string) (page []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	page = make([]byte, response.ContentLength)
	_, err = io.ReadFull(response.Body, page)
	return page, err
}

// findContinueToken returns the token of the next page, which follows the items, without decoding them.
func findContinueToken(page []byte) string {
	const key = `"continue":"`
	text := string(page[max(0, len(page)-100):])
	_, after, found := strings.Cut(text, key)
	if !found {
		return ""
	}
	token, _, _ := strings.Cut(after, `"`)
	return token
}

// publishPageOrCountTokens walks the tokens of a page, or decodes what an event needs, and publishes one for each resource.
func (r *fleetReader) publishPageOrCountTokens(ctx context.Context, page []byte) error {
	if r.publisher == nil {
		_, err := countTokens(page)
		return err
	}
	var list struct {
		Items []struct {
			ID         string `json:"id"`
			Kind       string `json:"kind"`
			Generation int64  `json:"generation"`
			Metadata   struct {
				Labels struct {
					Region string `json:"region"`
				} `json:"labels"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return err
	}
	for _, item := range list.Items {
		r.published++
		event := newCloudEvent(r.published)
		event.Subject, event.Time = item.ID, time.Now()
		event.Data = fmt.Appendf(nil, `{"resource_id":%q,"resource_type":%q,"region":%q}`, item.ID, item.Kind, item.Metadata.Labels.Region)
		if err := r.publisher.publish(ctx, r.topic, newAMQPMessage(event)); err != nil {
			return err
		}
	}
	return nil
}
