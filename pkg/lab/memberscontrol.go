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

// Status returns member i's view of the cluster.
func (m *Members) Status(ctx context.Context, i int) (MemberStatus, error) {
	var s MemberStatus
	err := m.ask(ctx, i, http.MethodGet, "/status", nil, &s)
	return s, err
}

// Compact discards all revisions before this one.
func (m *Members) Compact(ctx context.Context, revision int64) error {
	return m.askAny(ctx, http.MethodPost, "/compact", url.Values{"revision": {strconv.FormatInt(revision, 10)}}, nil)
}

// SetReadOnly raises or clears the quota alarm, which makes etcd refuse writes.
func (m *Members) SetReadOnly(ctx context.Context, on bool) error {
	return m.askAny(ctx, http.MethodPost, "/alarm", url.Values{"on": {strconv.FormatBool(on)}}, nil)
}

// readRange reads all keys with a prefix at a revision; 0 is now.
func (m *Members) readRange(ctx context.Context, prefix string, revision int64) (MemberRange, error) {
	var r MemberRange
	query := url.Values{"prefix": {prefix}, "revision": {strconv.FormatInt(revision, 10)}}
	err := m.askAny(ctx, http.MethodGet, "/range", query, &r)
	return r, err
}

// askAny asks the members in order until one answers.
func (m *Members) askAny(ctx context.Context, method, path string, query url.Values, out any) error {
	var errs []error
	for i := range m.state.EtcdMembers {
		err := m.ask(ctx, i+1, method, path, query, out)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// memberPatience bounds a question to the only member, otherPatience one to a member of several: a member that is
// paused, or has no quorum, must not keep the others from being asked.
const (
	memberPatience = 60 * time.Second
	otherPatience  = 5 * time.Second
)

func (m *Members) ask(ctx context.Context, i int, method, path string, query url.Values, out any) error {
	if err := m.check(i); err != nil {
		return err
	}
	patience := memberPatience
	if m.state.EtcdMembers > 1 {
		patience = otherPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+memberName(i)+path+"?"+query.Encode(), nil)
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
		return fmt.Errorf("%s: %s: %s", memberName(i), path, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
