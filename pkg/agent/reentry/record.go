// SPDX-License-Identifier: Apache-2.0

package reentry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/calico-go/calico/pkg/daemon/statefile"
	"github.com/calico-go/calico/pkg/model"
)

// GUIDName is the file with the GUID of the cluster that the host's pods are in.
const GUIDName = "clusterguid"

// recordName is the directory with one file for each container's endpoint on this host. The kernel says which of them live; it doesn't say
// which pod, policy and ports an interface has.
const recordName = "endpoints"

// record is a copy on disk of the host's endpoints in etcd.
type record struct {
	dir       string
	endpoints map[string]recorded // by path
}

// recorded is one endpoint.
type recorded struct {
	Path     string          `json:"path"`
	Revision int64           `json:"revision"`
	Value    json.RawMessage `json:"value"` // as in etcd
}

// openRecord reads the record. It skips unreadable files.
func openRecord(dir string) record {
	r := record{filepath.Join(dir, recordName), map[string]recorded{}}
	files, _ := os.ReadDir(r.dir)
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") { // of an agent that was killed
			_ = os.Remove(filepath.Join(r.dir, f.Name())) // tried again by the next
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		var e recorded
		if err == nil && json.Unmarshal(data, &e) == nil && r.file(e.Path) == filepath.Join(r.dir, f.Name()) {
			r.endpoints[e.Path] = e
		}
	}
	return r
}

func (r record) file(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(r.dir, hex.EncodeToString(sum[:16]))
}

// newest returns the latest revision in the record.
func (r record) newest() (revision int64) {
	for _, e := range r.endpoints {
		revision = max(revision, e.Revision)
	}
	return revision
}

// take updates the record. It keeps only endpoints of containers: other writers of endpoints write them again.
func (r record) take(node string, u model.Update) error {
	var errs []error
	there := map[string]bool{}
	for _, e := range u.Entries {
		key, ok := e.Key.(model.WorkloadEndpointKey)
		if !ok || key.Host != node {
			continue
		}
		if spec, ok := e.Value.(model.WorkloadEndpoint); ok && e.Exists() && spec.ContainerID != "" {
			there[e.Path] = true
			errs = append(errs, r.put(e, spec))
		} else {
			errs = append(errs, r.remove(e.Path))
		}
	}
	if u.Resync {
		for path := range r.endpoints {
			if !there[path] {
				errs = append(errs, r.remove(path))
			}
		}
	}
	return errors.Join(errs...)
}

func (r record) put(e model.Entry, spec model.WorkloadEndpoint) error {
	if r.endpoints[e.Path].Revision == e.Revision {
		return nil
	}
	value, err := model.FormatValue(spec)
	if err != nil {
		return fmt.Errorf("record endpoint %s: %w", e.Path, err)
	}
	kept := recorded{e.Path, e.Revision, value}
	data, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("record endpoint %s: %w", e.Path, err)
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("record endpoint %s: %w", e.Path, err)
	}
	if err := statefile.Put(r.file(e.Path), data, 0o644); err != nil {
		return err
	}
	r.endpoints[e.Path] = kept
	return nil
}

func (r record) remove(path string) error {
	if _, ok := r.endpoints[path]; !ok {
		return nil
	}
	delete(r.endpoints, path)
	if err := os.Remove(r.file(path)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget endpoint %s: %w", path, err)
	}
	return nil
}

// readGUID returns "" if the file is missing, or holds no GUID: its content may not have reached the disk, or only in part.
func readGUID(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, GUIDName))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	guid := strings.TrimSpace(string(data))
	if b, bad := hex.DecodeString(guid); bad != nil || len(b) != guidSize {
		guid = ""
	}
	return guid, err
}

func writeGUID(dir, guid string) error {
	return statefile.Write(filepath.Join(dir, GUIDName), []byte(guid+"\n"))
}

// guidSize is the length of a cluster's GUID in bytes, which Calico writes in hexadecimal.
const guidSize = 16

// newGUID returns a random GUID.
func newGUID() string {
	var b [guidSize]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
