package inspect

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// maxKeys limits the number of reported values. An expression may build an object with names that
// come from the resource.
const maxKeys = 200

// A payloadCheck builds payloads, counts the values that are empty or converted to text, and keeps
// one payload as an example.
type payloadCheck struct {
	watch   *Watch
	empty   map[string]*EmptyField
	texts   map[string]*TextField
	example *PayloadExample
	buf     []byte
}

func newPayloadCheck(w *Watch) payloadCheck {
	return payloadCheck{watch: w, empty: map[string]*EmptyField{}, texts: map[string]*TextField{}}
}

// buildPayloadAndCountProblems builds the payload of an event about a resource. It counts the values that are
// empty or lose their type.
func (c *payloadCheck) buildPayloadAndCountProblems(it *source.Item, v decision.Verdict, now time.Time) error {
	data, problems, err := c.watch.Payload.AppendPayload(c.buf[:0], payload.Input{
		Raw:    it.Resource.Raw,
		ID:     string(it.ID),
		Type:   c.watch.Collection,
		Reason: v.Reason.String(),
		Now:    now,
	})
	c.buf = data
	if err != nil {
		return fmt.Errorf("build the payload of %q: %w", it.ID, err)
	}
	if c.example == nil || v.ShouldPublish && !c.example.Due {
		c.example = &PayloadExample{ID: string(it.ID), Due: v.ShouldPublish, Data: bytes.Clone(data)}
	}
	if err := c.countConversions(it); err != nil {
		return err
	}
	counted := map[string]bool{}
	for _, problem := range problems {
		counted[problem.Key] = true
		c.countEmptyField(problem.Key, problem.Err.Error(), it.ID)
	}
	return visitAllEmptyStrings(data, func(key string) {
		if !counted[key] {
			c.countEmptyField(key, "the result is an empty string", it.ID)
		}
	})
}

// countConversions counts the values that lose the type that they have in the resource.
func (c *payloadCheck) countConversions(it *source.Item) error {
	list, err := c.watch.Payload.FindConversionsToText(it.Resource.Raw)
	if err != nil {
		return fmt.Errorf("read %q: %w", it.ID, err)
	}
	for _, conversion := range list {
		f := c.texts[conversion.Key]
		if f == nil {
			f = &TextField{
				Key:     conversion.Key,
				Field:   conversion.Field,
				Type:    conversion.Type,
				Instead: conversion.CEL,
				Example: string(it.ID),
			}
			c.texts[conversion.Key] = f
		}
		f.Resources++
	}
	return nil
}

func (c *payloadCheck) countEmptyField(key, reason string, id []byte) {
	f := c.empty[key]
	if f == nil {
		if len(c.empty) >= maxKeys {
			return
		}
		f = &EmptyField{Key: key, Reason: reason, Example: string(id)}
		c.empty[key] = f
	}
	f.Resources++
}

func (c *payloadCheck) listTextFields() []TextField {
	list := make([]TextField, 0, len(c.texts))
	for _, f := range c.texts {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b TextField) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

func (c *payloadCheck) listEmptyFieldCounts() []EmptyField {
	list := make([]EmptyField, 0, len(c.empty))
	for _, f := range c.empty {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b EmptyField) int {
		return cmp.Or(cmp.Compare(b.Resources, a.Resources), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// visitAllEmptyStrings calls found with the path of each empty text in a payload.
func visitAllEmptyStrings(data []byte, found func(key string)) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowDuplicateNames(true))
	return visitEmptyStrings(dec, "message_data", found)
}

// visitEmptyStrings visits the object that dec reads next, which is at path.
func visitEmptyStrings(dec *jsontext.Decoder, path string, found func(key string)) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		key, err := dec.ReadToken()
		if err != nil {
			return err
		}
		fieldPath := path + "." + key.String()
		if dec.PeekKind() == '{' {
			if err := visitEmptyStrings(dec, fieldPath, found); err != nil {
				return err
			}
			continue
		}
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		if string(value) == `""` {
			found(fieldPath)
		}
	}
	_, err := dec.ReadToken()
	return err
}
