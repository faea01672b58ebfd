// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/daemon/statefile"
)

// LeasesName is the file in the var directory that lists the leases which the host's status may be attached to. It lets an agent recognize
// the status that its predecessor left in etcd.
const LeasesName = "status-leases"

// maxLeases is how many leases the file lists: those of agents that ended before they could write the status.
const maxLeases = 16

// heldLease is a lease, and where it was obtained: the result of Place, or "".
type heldLease struct {
	id    int64
	place string
}

// leases are those that the status of this host may be attached to.
type leases struct {
	path  string // "" = don't keep them on disk
	place string

	mu    sync.Mutex
	taken []int64     // by this process
	all   []heldLease // as on disk: latest first
}

// openLeases reads the predecessor's file. After an error it has no leases.
func openLeases(dir, place string) (*leases, error) {
	l := &leases{place: place}
	if dir == "" {
		return l, nil
	}
	l.path = filepath.Join(dir, LeasesName)
	text, err := os.ReadFile(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		l.all, err = parseLeases(string(text))
	}
	return l, err
}

// parseLeases parses lines of a lease's ID, in hexadecimal as etcdctl shows it, and its place.
func parseLeases(text string) ([]heldLease, error) {
	var all []heldLease
	for line := range strings.Lines(text) {
		number, place, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, err := strconv.ParseInt(number, 16, 64)
		if err != nil || id <= 0 || strings.Contains(place, " ") {
			return nil, fmt.Errorf("line %.60q: want a lease's ID and where it was taken", line)
		}
		all = append(all, heldLease{id, place})
	}
	return all, nil
}

func formatLeases(all []heldLease) []byte {
	var b bytes.Buffer
	for _, l := range all {
		fmt.Fprintln(&b, strings.TrimSuffix(strconv.FormatInt(l.id, 16)+" "+l.place, " "))
	}
	return b.Bytes()
}

// take records a lease on disk before anything is written under it.
func (l *leases) take(id int64) error {
	return l.change(func() {
		l.taken = append(l.taken, id)
		l.all = slices.Insert(l.all, 0, heldLease{id, l.place})
	})
}

// settle records that the status is attached to a lease, so that no other is needed. It writes the file again if that is gone.
func (l *leases) settle(id int64) error {
	return l.change(func() { l.all = []heldLease{{id, l.place}} })
}

func (l *leases) change(change func()) error {
	l.mu.Lock()
	change()
	l.all = l.all[:min(len(l.all), maxLeases)]
	text := formatLeases(l.all)
	l.mu.Unlock()
	if l.path == "" {
		return nil
	}
	return statefile.Write(l.path, text)
}

// owns reports whether a lease is this process's, or that of an agent that has ended: one that ran in this very place, where only one agent
// runs at a time.
func (l *leases) owns(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.taken, id) || l.place != "" && slices.Contains(l.all, heldLease{id, l.place})
}

// Place identifies where this process runs: the kernel's boot, and the network namespace by a number that the kernel gives only once.
func Place() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(socket) }()
	namespace, err := unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return "", fmt.Errorf("SO_NETNS_COOKIE: %w", err)
	}
	return strings.TrimSpace(string(boot)) + "/" + strconv.FormatUint(namespace, 16), nil
}
