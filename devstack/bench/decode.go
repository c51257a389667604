package main

import (
	"context"
	"io"
	"time"
)

// decodeBench measures a list round of the sentinel.
func decodeBench() bench {
	const walk, plain = "sentinel.list_decode_vs_token_walk", "sentinel.list_decode_vs_encoding_json"
	return bench{names: []string{walk, plain}, run: func(context.Context, io.Writer) ([]line, error) {
		r, err := measurePageDecoding(500, 2*time.Second)
		if err != nil {
			return nil, err
		}
		return []line{
			{kind: "ratio", name: walk, value: r.VsTokenWalk(), op: "<=", want: 1.2},
			{kind: "ratio", name: plain, value: r.VsPlain(), op: ">=", want: 6},
		}, nil
	}}
}
