package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrUnavailable means that the database is unreachable, or is not the one that accepts writes. The
// operation may be retried later. A commit that fails with this error may still have taken effect.
var ErrUnavailable = errors.New("database unavailable")

var errReadOnly = errors.New("the server is read-only")

// SQLSTATE codes with special handling.
const (
	codeReadOnly              = "25006"
	codeSerialization         = "40001"
	codeDeadlock              = "40P01"
	codeTooManyConns          = "53300"
	codeAdminShutdown         = "57P01"
	codeCrashShutdown         = "57P02"
	codeCannotConnect         = "57P03"
	codeDatabaseDropped       = "57P04"
	codeIdleInTx              = "25P03"
	codeLockTimeout           = "55P03"
	codeQueryCanceled         = "57014"
	codeUndefinedTable        = "42P01"
	codeInsufficientPrivilege = "42501"
	classConnection           = "08"
)

// SQLState returns the SQLSTATE of the error, "" if the server did not send it.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsStatementTimeout reports whether the server cancelled a statement, which it does when the statement timeout is over.
func IsStatementTimeout(err error) bool { return SQLState(err) == codeQueryCanceled }

// ViolatedConstraint returns the name of the violated constraint, or "".
func ViolatedConstraint(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.ConstraintName
	}
	return ""
}

// markIfUnavailable marks an error of the connection as ErrUnavailable. An answer of a working server is
// not one.
func markIfUnavailable(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) || !isConnectionLostOrUnusable(ctx, err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isConnectionLostOrUnusable reports whether err means that the connection is no longer usable.
func isConnectionLostOrUnusable(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false // the caller gave up, which does not concern the server
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	switch code := SQLState(err); code {
	case "":
		return errors.Is(err, pgconn.ErrConnClosed) || isNetworkError(err)
	case codeReadOnly, codeTooManyConns, codeAdminShutdown, codeCrashShutdown, codeCannotConnect, codeDatabaseDropped, codeIdleInTx:
		return true
	default:
		return len(code) == 5 && code[:2] == classConnection
	}
}
