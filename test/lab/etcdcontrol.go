// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// EtcdLeader returns the number of the member that leads, from 1. It waits for
// an election: until ctx ends.
func (l *Lab) EtcdLeader(ctx context.Context) (leader int, err error) {
	err = until(ctx, "etcd to have a leader", func() (bool, error) {
		var errs []error
		for i := range l.members {
			s, err := l.EtcdStatus(ctx, i+1)
			if err == nil && s.Leader == s.ID {
				leader = i + 1
				return true, nil
			}
			errs = append(errs, err)
		}
		return false, errors.Join(errs...)
	})
	return leader, err
}

// EtcdStatus asks member i, from 1, how it sees the cluster.
func (l *Lab) EtcdStatus(ctx context.Context, i int) (MemberStatus, error) {
	var s MemberStatus
	err := l.ask(ctx, i, http.MethodGet, "/status", nil, &s)
	return s, err
}

// CompactEtcd forgets all revisions before this one.
func (l *Lab) CompactEtcd(ctx context.Context, revision int64) error {
	return l.askAny(ctx, http.MethodPost, "/compact", url.Values{"revision": {strconv.FormatInt(revision, 10)}}, nil)
}

// SetEtcdReadOnly raises or clears the quota alarm, which makes etcd refuse writes.
func (l *Lab) SetEtcdReadOnly(ctx context.Context, on bool) error {
	return l.askAny(ctx, http.MethodPost, "/alarm", url.Values{"on": {strconv.FormatBool(on)}}, nil)
}

// askAny asks the members in order until one answers.
func (l *Lab) askAny(ctx context.Context, method, path string, query url.Values, out any) error {
	var errs []error
	for i := range l.members {
		err := l.ask(ctx, i+1, method, path, query, out)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// memberPatience is how long a member may take to answer, and otherPatience how
// long where there are others to ask: one that is paused, or is alone without a
// quorum, must not keep a question from them.
const (
	memberPatience = 60 * time.Second
	otherPatience  = 5 * time.Second
)

func (l *Lab) ask(ctx context.Context, i int, method, path string, query url.Values, out any) error {
	m, err := l.member(i)
	if err != nil {
		return err
	}
	patience := memberPatience
	if len(l.members) > 1 {
		patience = otherPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+m.name+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := m.control.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s: %s: %s", m.name, path, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
