package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	takeGarden = `update tenant.installation set garden = $1 where garden is null or ($2 and garden <> $1)`
	readGarden = `select coalesce(garden, '') from tenant.installation`
)

// TakeGarden says where the Shoots of this database are, if nobody has yet or if
// they are to be made anew there, and gives what holds from now on.
func (s *Store) TakeGarden(ctx context.Context, garden string, anew bool) (holds string, err error) {
	err = s.send(ctx, func(b *pgx.Batch) {
		b.Queue(takeGarden, garden, anew)
		b.Queue(readGarden).QueryRow(func(row pgx.Row) error { return row.Scan(&holds) })
	})
	if err != nil {
		return "", fmt.Errorf("say where the Shoots are: %w", err)
	}
	return holds, nil
}

// Garden is where the Shoots of this database are, "" if no worker has said.
func (s *Store) Garden(ctx context.Context) (garden string, err error) {
	err = s.send(ctx, func(b *pgx.Batch) {
		b.Queue(readGarden).QueryRow(func(row pgx.Row) error { return row.Scan(&garden) })
	})
	if err != nil {
		return "", fmt.Errorf("read where the Shoots are: %w", err)
	}
	return garden, nil
}
