// Package history stores what a proof run saw, and checks it.
//
// A history is a file of JSON lines, one record each, in the order in which they were written. The
// checkers are pure functions over the records: they read no log and ask no process.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// AdapterName is the name of the adapters that record a history.
	AdapterName = "proof"
	// PathEnv is the environment variable with the path of the history for other processes.
	PathEnv = "PROOF_HISTORY"
)

// A Record is one observation. Exactly one of its pointers is set.
type Record struct {
	At time.Time `json:"at"`

	Request  *Request  `json:"request,omitempty"`
	Read     *Read     `json:"read,omitempty"`
	Event    *Event    `json:"event,omitempty"`
	Report   *Report   `json:"report,omitempty"`
	Write    *Write    `json:"write,omitempty"`
	Change   *Change   `json:"change,omitempty"`
	Fault    *Fault    `json:"fault,omitempty"`
	Silence  *Silence  `json:"silence,omitempty"`
	Exit     *Exit     `json:"exit,omitempty"`
	Stop     *Stop     `json:"stop,omitempty"`
	Usage    *Usage    `json:"usage,omitempty"`
	Cluster  *Cluster  `json:"cluster,omitempty"`
	Pool     *Pool     `json:"pool,omitempty"`
	Shoot    *Shoot    `json:"shoot,omitempty"`
	Sentinel *Sentinel `json:"sentinel,omitempty"`

	Execution  *Execution  `json:"execution,omitempty"`
	Node       *Node       `json:"node,omitempty"`
	NodeReport *NodeReport `json:"nodeReport,omitempty"`

	Restore    *Restore    `json:"restore,omitempty"`
	Orphan     *Orphan     `json:"orphan,omitempty"`
	LostChange *LostChange `json:"lostChange,omitempty"`
	Overwrite  *Overwrite  `json:"overwrite,omitempty"`
}

// Outcomes of a request.
const (
	OK      = "ok"      // the API acknowledged it
	Failed  = "failed"  // the API rejected it
	Unknown = "unknown" // it may have had an effect
)

// Operations of the workload.
const (
	Create   = "create"
	Edit     = "edit"
	Delete   = "delete"
	Trespass = "trespass" // a request about a cluster or a node pool of another tenant

	CreatePool = "create-pool"
	EditPool   = "edit-pool"
	DeletePool = "delete-pool"
)

// A Request is one request of the workload, with all its retries.
type Request struct {
	Op         string    `json:"op"`
	Tenant     string    `json:"tenant"`
	Name       string    `json:"name"`
	Intended   time.Time `json:"intended"` // start in the schedule
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	Outcome    string    `json:"outcome"`
	Status     int       `json:"status,omitempty"`
	ClusterID  string    `json:"clusterID,omitempty"`
	PoolID     string    `json:"poolID,omitempty"`     // if the request is about a node pool
	Generation int64     `json:"generation,omitempty"` // as acknowledged
	Sent       int       `json:"sent,omitempty"`       // how often the client sent it
	Error      string    `json:"error,omitempty"`
}

// A Read is a list with the token of one tenant.
type Read struct {
	Tenant string   `json:"tenant"`
	Names  []string `json:"names"`
}

// An Event is one delivery of a CloudEvent. Consumer names the subscription. A node pool is in the place of a
// cluster.
type Event struct {
	Consumer   string    `json:"consumer"`
	ID         string    `json:"id"`
	Collection string    `json:"collection"`
	ClusterID  string    `json:"clusterID"`
	Generation int64     `json:"generation"`
	Reason     string    `json:"reason"`
	Updated    time.Time `json:"updated"`   // updated_time of the cluster
	Published  time.Time `json:"published"` // time in the event
}

// ParseEvent returns the record of an event with the message data of the proof.
func ParseEvent(consumer, id string, published time.Time, data []byte) *Event {
	var d struct {
		Collection string          `json:"collection"`
		ResourceID string          `json:"resource_id"`
		Generation json.RawMessage `json:"generation"`
		Reason     string          `json:"reason"`
		Updated    string          `json:"updated"`
	}
	e := &Event{Consumer: consumer, ID: id, Published: published}
	if err := json.Unmarshal(data, &d); err != nil {
		e.Reason = "invalid data: " + err.Error()
		return e
	}
	e.Collection, e.ClusterID, e.Reason = d.Collection, d.ResourceID, d.Reason
	e.Generation, _ = strconv.ParseInt(strings.Trim(string(d.Generation), `"`), 10, 64) // none is 0, which no checker accepts
	e.Updated, _ = time.Parse(time.RFC3339Nano, d.Updated)                              // none is the zero time
	return e
}

// A Report is a report that an adapter stored. A node pool is in the place of a cluster.
type Report struct {
	Adapter    string `json:"adapter"`
	ClusterID  string `json:"clusterID"`
	Generation int64  `json:"generation"`
}

// A Write is one request that writes a Shoot, from the audit log of the garden.
type Write struct {
	User       string    `json:"user"`
	Verb       string    `json:"verb"`
	Shoot      string    `json:"shoot"`
	UID        string    `json:"uid,omitempty"`
	ClusterID  string    `json:"clusterID,omitempty"`
	Generation int64     `json:"generation,omitempty"` // SyncGeneration of the cluster
	Changed    int64     `json:"changed,omitempty"`    // generation of the Shoot
	History    string    `json:"history,omitempty"`    // id of the history of the database
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	Status     int       `json:"status"`
}

// A Change is a change event that the sink received.
type Change struct {
	ID        string `json:"id"`
	Source    string `json:"source"`
	Action    string `json:"action"`
	ClusterID string `json:"clusterID"`
	Cluster   string `json:"cluster"`
	Subject   string `json:"subject,omitempty"`
	Node      string `json:"node,omitempty"`

	Time time.Time `json:"time,omitzero"` // in the change event
}

// A Fault is one injected fault.
type Fault struct {
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
	Error  string    `json:"error,omitempty"` // why the fault could not be injected or ended

	Ahead time.Duration `json:"ahead,omitempty"` // of a clock; negative means behind
}

// An Exit is a process that ended without a fault.
type Exit struct {
	Process string `json:"process"`
	State   string `json:"state"`
	Log     string `json:"log,omitempty"` // end of its output
}

// A Silence is a time in which a server gave no response to the proof, because of a fault or because the machine
// was overloaded.
type Silence struct {
	Server string    `json:"server"`
	Start  time.Time `json:"start"` // of its last response
	End    time.Time `json:"end"`
}

// A Stop is the end of a process that got SIGTERM.
type Stop struct {
	Process string        `json:"process"`
	State   string        `json:"state"`
	Took    time.Duration `json:"took"`
}

// A Usage is what a process uses at one time.
type Usage struct {
	Process    string `json:"process"`
	Memory     int64  `json:"memory"` // resident, in bytes
	Goroutines int    `json:"goroutines"`
	Files      int    `json:"files"` // open file descriptors
}

// A Cluster is the state of a cluster at the end, as the API lists it.
type Cluster struct {
	ID         string           `json:"id"`
	Name       string           `json:"name"`
	Generation int64            `json:"generation"`
	Deleting   bool             `json:"deleting,omitempty"`
	Phase      string           `json:"phase"`
	Reported   map[string]int64 `json:"reported"` // observed generation by adapter

	// SyncGeneration rises with each change of the cluster and its node pools.
	SyncGeneration int64 `json:"syncGeneration"`

	Created    time.Time   `json:"created"`
	Updated    time.Time   `json:"updated"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// A Condition holds the times of a condition of a cluster, as reported by one adapter or aggregated.
type Condition struct {
	Name    string    `json:"name"`
	Changed time.Time `json:"changed"`          // last_transition_time
	Updated time.Time `json:"updated,omitzero"` // last report; zero if the condition is aggregated
}

// A Pool is the state of a node pool at the end, as the API lists it.
type Pool struct {
	ID         string           `json:"id"`
	Name       string           `json:"name"`
	ClusterID  string           `json:"clusterID"`
	Generation int64            `json:"generation"`
	Deleting   bool             `json:"deleting,omitempty"`
	Reported   map[string]int64 `json:"reported"` // observed generation by adapter
	Machines   int              `json:"machines"`
}

// A Shoot is the state of a Shoot, by default at the end.
type Shoot struct {
	Name       string         `json:"name"`
	UID        string         `json:"uid"`
	ClusterID  string         `json:"clusterID"`
	Generation int64          `json:"generation"` // SyncGeneration of the cluster
	Deleting   bool           `json:"deleting,omitempty"`
	Created    time.Time      `json:"created,omitzero"`
	Workers    map[string]int `json:"workers"` // maximum of machines by name
}

// A Sentinel is a replica at the end. Owned is the number of resources of the collection that it watches.
type Sentinel struct {
	Name       string `json:"name"`
	Collection string `json:"collection"`
	Owned      int    `json:"owned"`
}

// An Execution is the final state of an execution. It scales a separate target.
type Execution struct {
	Name          string `json:"name"`
	Wanted        bool   `json:"wanted"`            // an approver approves it
	Requested     bool   `json:"requested"`         // the API server acknowledged it
	Approved      bool   `json:"approved"`          // the API server acknowledged the approval
	Forged        bool   `json:"forged,omitempty"`  // the API server accepted a forged approval
	Refused       bool   `json:"refused,omitempty"` // it failed because the policies changed after the request
	Error         string `json:"error,omitempty"`
	Phase         string `json:"phase"`
	Outcome       string `json:"outcome"`
	Jobs          int    `json:"jobs"`
	TargetChanges int64  `json:"targetChanges"` // changes of the target's spec
	Undelivered   int    `json:"undelivered"`   // change events that its status keeps

	RollbackPlanned bool      `json:"rollbackPlanned,omitempty"` // the approved plan says how to roll back
	Rollback        *Rollback `json:"rollback,omitempty"`
}

// A Rollback is the execution that rolls back another one.
type Rollback struct {
	Approved bool   `json:"approved"` // the API server acknowledged the approval
	Phase    string `json:"phase"`
	Outcome  string `json:"outcome"`
	Restored bool   `json:"restored"` // the target is as it was before
}

// A Node is a change of a node's spec.unschedulable.
type Node struct {
	Name     string `json:"name"`
	Cordoned bool   `json:"cordoned"`
}

// A NodeReport is a report of a fault, or of its end.
type NodeReport struct {
	Node         string `json:"node"`
	Healthy      bool   `json:"healthy"`
	Acknowledged bool   `json:"acknowledged"`
	Error        string `json:"error,omitempty"`
}

// A File is a history that is being written. Its methods are safe for concurrent use.
type File struct {
	mu  sync.Mutex
	f   *os.File
	err error
}

// NewFile creates the file of a history. Several processes may append to one file.
func NewFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // a report that anyone may read
	if err != nil {
		return nil, fmt.Errorf("create history: %w", err)
	}
	return &File{f: f}, nil
}

// Add appends a record in one write, so that a kill loses no earlier record. The first error is
// returned by Close.
func (f *File) Add(r Record) {
	if r.At.IsZero() {
		r.At = rightTime()
	}
	line, err := json.Marshal(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		_, err = f.f.Write(append(line, '\n'))
	}
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("write history: %w", err)
	}
}

// rightTime returns the time of the kernel. The clock of package time is wrong in an adapter with the fault.
func rightTime() time.Time {
	var now syscall.Timeval
	if err := syscall.Gettimeofday(&now); err != nil {
		return time.Now()
	}
	return time.Unix(now.Unix())
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.f.Close(); err != nil && f.err == nil {
		f.err = err
	}
	return f.err
}

// maxLine limits one record. A read of 100,000 clusters fits.
const maxLine = 16 << 20

// ReadFile reads a history.
func ReadFile(path string) ([]Record, error) {
	f, err := os.Open(path) //nolint:gosec // named by the caller
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer func() { _ = f.Close() }()
	var list []Record
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read history, record %d: %w", len(list)+1, err)
		}
		list = append(list, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	return list, nil
}
