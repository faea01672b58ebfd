// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// trialPatience bounds a request with a token that an earlier process left. A simple token of etcd ends with an index
// of the cluster's log, and a member waits for that index before it checks the token. If the cluster was created anew,
// or restored from a backup, it would wait forever.
const trialPatience = 2 * time.Second

// token is what etcd issues to a user for the password.
type token struct {
	text string // "" for none
	// onTrial says that an earlier process left the token and that etcd has not yet served a request with it.
	onTrial bool
}

// authenticate returns a context with what every request carries: the user's token, and the demand that the member have
// a leader, so that a member cut off from the others says so instead of holding the request. A write is not sent with a
// token on trial, since it could not be repeated.
func (c *Client) authenticate(ctx context.Context, m *member, client *clientv3.Client, write bool) (context.Context, token, failure, error) {
	ctx = clientv3.WithRequireLeader(ctx)
	if c.cfg.Username == "" {
		return ctx, token{}, failure{}, nil
	}
	c.mu.Lock()
	tok, off := c.token, c.authOff
	c.mu.Unlock()
	if tok.text == "" && !off || tok.onTrial && write {
		var f failure
		var err error
		if tok, f, err = c.newToken(ctx, m, client, write); err != nil {
			return nil, token{}, f, err
		}
	}
	if tok.text != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, tok.text)
	}
	return ctx, tok, failure{}, nil
}

// newToken takes the token that an earlier process left, or asks etcd for one.
func (c *Client) newToken(ctx context.Context, m *member, client *clientv3.Client, write bool) (token, failure, error) {
	password, err := readPassword(c.cfg.PasswordFile)
	if err != nil {
		return token{}, failure{member: m.url, reason: err.Error(), err: err, kind: ErrAuth}, err
	}
	file := newTokenFile(c.cfg)
	if !write {
		text := file.read(c.log)
		c.mu.Lock()
		useful := text != "" && text != c.rejected
		if useful {
			c.token, c.authOff = token{text, true}, false
		}
		c.mu.Unlock()
		if useful {
			return token{text, true}, failure{}, nil
		}
	}
	c.roundTrips.Add(1)
	var t trace
	resp, err := client.Authenticate(context.WithValue(ctx, traceKey{}, &t), c.cfg.Username, password)
	off := errors.Is(err, rpctypes.ErrAuthNotEnabled)
	if err != nil && !off {
		return token{}, judge(m.url, t.err, false, true), err
	}
	var tok token
	if !off {
		tok.text = resp.Token
		file.write(tok.text, c.log)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.authOff = tok, off
	return tok, failure{}, nil
}

// tokenServed records that etcd accepts the token.
func (c *Client) tokenServed(used token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token.text == used.text {
		c.token.onTrial = false
	}
}

// forgetToken records that etcd rejected the token, or that it requires one.
func (c *Client) forgetToken(used token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used.text != "" {
		c.rejected = used.text
	}
	if c.token.text == used.text {
		c.token, c.authOff = token{}, false
	}
}

// maxPassword bounds the read, in case the path is that of an endless device. No password is that long.
const maxPassword = 4 << 10

// readPassword reads the file and trims white space.
func readPassword(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", passwordError(err)
	}
	defer func() { _ = f.Close() }() // read only
	b, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", passwordError(err)
	}
	if len(b) > maxPassword {
		return "", fmt.Errorf("etcd password file %s has more than %d bytes: name a file that has the password alone", path, maxPassword)
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return "", fmt.Errorf("etcd password file %s is empty: write the password into it", path)
	}
	return string(b), nil
}

func passwordError(err error) error {
	return fmt.Errorf("etcd password file: %w: name a file that this process may read", err)
}
