// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/calico-go/calico/pkg/agent/statefile"
)

// LeasesName is the file in the var directory that names the leases which the host's
// status hangs on. By it a host knows its own former life in etcd.
const LeasesName = "status-leases"

// lifeLease is a lease, and where it was taken: a place is one boot of one network
// namespace, in which one agent at a time is at work. "" = it isn't known that it was alone.
type lifeLease struct {
	id    int64
	place string
}

// maxLives is how many leases the file may name: those of an agent that ended at an
// odd moment, again and again.
const maxLives = 16

// life is what proves that the host's status in etcd is of this host.
type life struct {
	path string // "" = nothing is kept on disk
	// spare is written where path can't be: in the run directory, which is gone after a
	// boot, as is the place; so it proves as much. "" = there is none.
	spare string
	place string

	disk  sync.Mutex // one writes at a time; it may take long, and who asks doesn't wait
	noted bool       // the file says what is known
	log   *slog.Logger
	said  bool // that the spare is in use

	mu     sync.Mutex
	former []lifeLease // of earlier processes
	own    []int64     // of this process, all
	held   []int64     // of these, those that the status may hang on
}

// openLife reads what an earlier process has left. An error is of a file: nothing of
// what it says is believed then.
func openLife(path, spare, place string) (*life, error) {
	l := &life{path: path, spare: spare, place: place}
	if path == "" {
		return l, nil
	}
	former, err := readLeases(path)
	l.former, l.noted = former, err == nil
	spared, errSpare := readLeases(spare)
	for _, lease := range spared {
		if !slices.Contains(l.former, lease) {
			l.former = append(l.former, lease)
		}
	}
	return l, errors.Join(err, errSpare)
}

// readLeases reads the file; one that isn't there names none.
func readLeases(path string) ([]lifeLease, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	const most = maxLives * 128
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if len(data) > most {
		return nil, fmt.Errorf("%s: more than %d bytes: no agent wrote that", path, most)
	}
	leases, err := parseLeases(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return leases, nil
}

// parseLeases reads lines of a lease's id, in hexadecimal as etcdctl shows it, and its place.
func parseLeases(data []byte) ([]lifeLease, error) {
	var all []lifeLease
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		words := strings.Split(lines.Text(), " ")
		id, err := strconv.ParseInt(words[0], 16, 64)
		if err != nil || id <= 0 || len(words) > 2 || len(words) == 2 && !isPlace(words[1]) {
			return nil, fmt.Errorf("line %d is %.60q: want a lease's id and where it was taken", n, lines.Text())
		}
		place := ""
		if len(words) == 2 {
			place = words[1]
		}
		all = append(all, lifeLease{id, place})
	}
	if len(all) > maxLives {
		return nil, fmt.Errorf("%d leases: no agent wrote that", len(all))
	}
	return all, lines.Err()
}

// isPlace reports whether words of the file can be a place.
func isPlace(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func formatLeases(all []lifeLease) []byte {
	var b bytes.Buffer
	for _, l := range all {
		_, _ = fmt.Fprint(&b, strconv.FormatInt(l.id, 16)) // into memory
		if l.place != "" {
			_, _ = fmt.Fprint(&b, " ", l.place)
		}
		_ = b.WriteByte('\n')
	}
	return b.Bytes()
}

// take notes a lease before anything is written under it; beside is another that the
// status may hang on yet, 0 for none.
func (l *life) take(id, beside int64) error {
	return l.change(func() {
		l.own = append(l.own, id)
		l.held = []int64{id}
		if beside != 0 {
			l.held = append(l.held, beside)
		}
	})
}

// settle forgets the leases of former lives: the name is this process's now, or is
// another host's. What couldn't be written before is, too, and what was deleted.
func (l *life) settle() error {
	return l.change(func() { l.former = nil })
}

// change changes what is known, and the file where that says something else or is gone.
func (l *life) change(change func()) error {
	l.disk.Lock()
	defer l.disk.Unlock()
	before := l.lines()
	l.mu.Lock()
	change()
	l.mu.Unlock()
	all := l.lines()
	if l.path == "" || l.noted && len(all) == 0 && len(before) == 0 {
		return nil
	}
	text := formatLeases(all[:min(len(all), maxLives)])
	err := statefile.Write(l.path, text)
	l.noted = err == nil
	switch {
	case l.spare == "":
		return err
	case err == nil:
		if err := os.Remove(l.spare); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if spare := statefile.Write(l.spare, text); spare != nil {
		return errors.Join(err, spare)
	}
	if !l.said {
		l.log.Warn("what proves that the host's status is its own can't be kept in the var directory: until the next boot it is in the run directory", "file", l.spare, "reason", err)
		l.said = true
	}
	return nil
}

// lines are what the file is to say.
func (l *life) lines() []lifeLease {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []lifeLease
	for _, id := range l.held {
		all = append(all, lifeLease{id, l.place})
	}
	return append(all, l.former...)
}

// isOwn says whether a lease is this process's, or that of one which ended: it was at
// work in this very place, where one agent at a time is.
func (l *life) isOwn(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.own, id) || l.place != "" && slices.Contains(l.former, lifeLease{id, l.place})
}

// isTaken says whether this very process took a lease.
func (l *life) isTaken(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.own, id)
}

// isFormer says whether a lease is of a former life of this disk.
func (l *life) isFormer(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.former, func(f lifeLease) bool { return f.id == id })
}

// Place says where this process is: the kernel's boot, and the network namespace
// by a number that the kernel gives once.
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
	place := strings.TrimSpace(string(boot)) + "/" + strconv.FormatUint(namespace, 16)
	if !isPlace(place) {
		return "", fmt.Errorf("the boot's id is %.60q", boot)
	}
	return place, nil
}

// lifeOf opens the life of an agent. What is amiss is logged, and costs no more than
// that a host which changed its address may wait for its former lease.
func lifeOf(cfg Config) *life {
	place := ""
	if cfg.Lonely {
		var err error
		if place, err = Place(); err != nil {
			cfg.Logger.Warn("it isn't known which network namespace of which boot this is: after a restart of the agent other hosts of this name are asked for", "reason", err)
		}
	}
	path, spare := "", ""
	if cfg.VarDir != "" {
		path = filepath.Join(cfg.VarDir, LeasesName)
		if cfg.RunDir != "" {
			spare = filepath.Join(cfg.RunDir, LeasesName)
		}
	}
	l, err := openLife(path, spare, place)
	l.log = cfg.Logger
	if err != nil {
		cfg.Logger.Warn("what proves that the host's former status is its own can't be read: it goes by the address", "reason", err)
	}
	return l
}
