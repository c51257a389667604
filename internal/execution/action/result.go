package action

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxResult limits an encoded result to the size of a termination message.
const MaxResult = 4096

// EncodeBounded returns a result as text of at most MaxResult bytes. To fit, it omits in this order: the
// beginning of the log, the last resources, warnings, errors of a dry run, and the end of the
// message. Count is kept.
func EncodeBounded(r Result) string {
	text, fits := encodeResult(r)
	if fits {
		return text
	}
	r.Truncated = true
	for _, shorten := range []func(*Result) bool{shortenLog, dropLastResource, dropLastWarning, dropLastDryRunMessage, halveMessage} {
		for shorten(&r) {
			if text, fits = encodeResult(r); fits {
				return text
			}
		}
	}
	bare := Result{Version: r.Version, Code: r.Code, Attempt: r.Attempt, Changed: r.Changed, Count: r.Count, Truncated: true, Started: r.Started, Ended: r.Ended}
	text, _ = encodeResult(bare)
	return text
}

// encodeResult encodes a result unabridged. It does not escape HTML characters, which would take
// six bytes each.
func encodeResult(r Result) (text string, fits bool) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil { // for example a time after the year 9999
		b.Reset()
		fmt.Fprintf(&b, `{"v":%d,"code":%d,"changed":%t,"truncated":true,"started":"0001-01-01T00:00:00Z","ended":"0001-01-01T00:00:00Z"}`, r.Version, r.Code, r.Changed)
	}
	text = strings.TrimSuffix(b.String(), "\n")
	return text, len(text) <= MaxResult
}

// shortenLog removes the first half of the remaining lines.
func shortenLog(r *Result) (shortened bool) {
	if r.Log == "" {
		return false
	}
	rest := r.Log[len(r.Log)/2:]
	if _, after, ok := strings.Cut(rest, "\n"); ok && len(r.Log) > 1 {
		r.Log = after
	} else {
		r.Log = ""
	}
	return true
}

func dropLastResource(r *Result) (dropped bool) {
	if len(r.Resources) == 0 {
		return false
	}
	r.Count = max(r.Count, int32(len(r.Resources))) //nolint:gosec // far below 2^31
	r.Resources = r.Resources[:len(r.Resources)-1]
	if len(r.Resources) == 0 {
		r.Resources = nil
	}
	return true
}

func dropLastWarning(r *Result) (dropped bool) {
	if len(r.Warnings) == 0 {
		return false
	}
	r.Warnings = r.Warnings[:len(r.Warnings)-1]
	if len(r.Warnings) == 0 {
		r.Warnings = nil
	}
	return true
}

// dropLastDryRunMessage works on a copy, so that the DryRun of the caller stays unchanged.
func dropLastDryRunMessage(r *Result) (dropped bool) {
	if r.DryRun == nil || len(r.DryRun.Warnings)+len(r.DryRun.Errors) == 0 {
		return false
	}
	d := r.DryRun.DeepCopy()
	if n := len(d.Warnings); n > 0 {
		d.Warnings = d.Warnings[:n-1]
	} else {
		d.Errors = d.Errors[:len(d.Errors)-1]
	}
	r.DryRun = d
	return true
}

func halveMessage(r *Result) (shortened bool) {
	const least = 16
	if len(r.Message) <= least {
		return false
	}
	r.Message = TruncateText(r.Message, len(r.Message)/2)
	return true
}

// DecodeResult decodes the output of EncodeBounded.
func DecodeResult(text string) (Result, error) {
	var r Result
	if len(text) > MaxResult {
		return r, fmt.Errorf("result has %d bytes, at most %d are allowed", len(text), MaxResult)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&r); err != nil {
		return Result{}, fmt.Errorf("read result: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Result{}, errors.New("read result: trailing data")
	}
	if r.Version != resultVersion {
		return Result{}, fmt.Errorf("unsupported result version %d, want %d", r.Version, resultVersion)
	}
	switch r.Code {
	case CodeOK, CodeGuard, CodeForbidden, CodeInvalid, CodeDenied, CodeTransient, CodePartial, CodeDeadline, CodeCancelled:
		return r, nil
	}
	return Result{}, fmt.Errorf("unknown result code %d", r.Code)
}
