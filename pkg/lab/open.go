// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Open attaches to a lab that another process has made. Close detaches from it and keeps it running.
func Open(name string) (*Lab, error) {
	if err := checkName("lab", name); err != nil {
		return nil, err
	}
	s, err := readState(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s is not up: calico-lab up --name %s", name, name)
	}
	if err != nil {
		return nil, err
	}
	if !s.Ready {
		return nil, fmt.Errorf("lab %s is being made, or its making was cut short: calico-lab down --name %s removes it", name, name)
	}
	l := newLab(Config{Log: io.Discard, CNIPath: s.CNIPath}, s)
	l.procs.keeper = newKeeper()
	files, _ := filepath.Glob(filepath.Join(l.dir, "hosts", "*", "host.json"))
	for _, file := range files {
		var rec hostRecord
		if err := readJSON(file, &rec); err != nil {
			return nil, err
		}
		l.hosts[rec.Name] = &Host{lab: l, name: rec.Name, index: rec.Index, rack: rec.Rack, ns: l.named(rec.Name)}
	}
	return l, nil
}

// Pods returns all pods, sorted by name, including those whose ADD or DEL failed.
func (l *Lab) Pods() ([]*Pod, error) {
	files, err := filepath.Glob(filepath.Join(l.dir, "pods", "*.json"))
	if err != nil {
		return nil, err
	}
	var pods []*Pod
	for _, file := range files {
		p, err := l.FindPod(strings.TrimSuffix(filepath.Base(file), ".json"))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted since the directory was read
		}
		if err != nil {
			return nil, err
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return strings.Compare(a.rec.Name, b.rec.Name) })
	return pods, nil
}

// nameError is about a name that is taken or unknown. It wraps os.ErrExist or os.ErrNotExist, but its text does not
// mention a file.
type nameError struct {
	text string
	is   error
}

// Error returns only the text.
func (e *nameError) Error() string { return e.text }

// Unwrap returns os.ErrExist or os.ErrNotExist.
func (e *nameError) Unwrap() error { return e.is }

// FindPod returns the pod with the name; the error is os.ErrNotExist if there is none.
func (l *Lab) FindPod(name string) (*Pod, error) {
	var rec podRecord
	err := readJSON(filepath.Join(l.dir, "pods", name+".json"), &rec)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &nameError{fmt.Sprintf("no pod %s in lab %s", name, l.name), os.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	host, err := l.FindHost(rec.Host)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	return &Pod{host: host, ns: l.named(rec.Name), rec: rec}, nil
}
