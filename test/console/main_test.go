package console

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
