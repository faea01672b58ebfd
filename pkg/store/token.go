// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/calico-go/calico/pkg/store/wire"
)

const (
	// trialPatience bounds a request with a token that an earlier process left. A token
	// ends with an index of the cluster's log, which a member waits for before it looks at the
	// token: one of a cluster that was made anew, or from a backup, for ever.
	trialPatience = 2 * time.Second
	// maxTrials bounds how many tokens that others left a process tries.
	maxTrials = 2
	// turnPatience is how long a process waits for another that is about to leave a token.
	turnPatience = 500 * time.Millisecond
)

// token is what etcd gives a user for the password.
type token struct {
	text string // "": none
	left bool   // by an earlier process, and etcd has served no request with it since
}

// authenticate returns a context that carries what each request carries: the
// user's token, and the demand that the member has a leader. A member that is
// cut off from the others then says so instead of keeping the request. trial:
// the token may be one that etcd doesn't know any more.
func (c *Client) authenticate(ctx context.Context, m *member, conn grpc.ClientConnInterface, trial bool) (context.Context, token, failure, error) {
	md := metadata.MD{rpctypes.MetadataRequireLeaderKey: {rpctypes.MetadataHasLeader}}
	if c.username == "" {
		return metadata.NewOutgoingContext(ctx, md), token{}, failure{}, nil
	}
	c.mu.Lock()
	tok, off := c.token, c.noAuth
	c.mu.Unlock()
	if tok.left && !trial {
		tok = token{}
	}
	if tok.text == "" && !off {
		var f failure
		var err error
		tok, f, err = c.getToken(metadata.NewOutgoingContext(ctx, md), m, conn, trial)
		if err != nil {
			return nil, token{}, f, err
		}
		if c.tokens != nil && tok.text != "" {
			c.log.Debug("token of etcd", "left", tok.left)
		}
	}
	if tok.text != "" {
		md[rpctypes.TokenFieldNameGRPC] = []string{tok.text}
	}
	return metadata.NewOutgoingContext(ctx, md), tok, failure{}, nil
}

// getToken returns one that an earlier process left, or asks etcd for one. Of processes that
// would ask at the same time, as in a burst of pods, one does: etcd takes long to look at a password.
func (c *Client) getToken(ctx context.Context, m *member, conn grpc.ClientConnInterface, trial bool) (token, failure, error) {
	password, version, err := readPassword(c.passwordFile)
	if err != nil {
		return token{}, failure{member: m.url, reason: err.Error(), err: err, kind: ErrAuth}, err
	}
	file := c.tokens.of(version)
	if tok, ok := c.leftToken(file, trial); ok {
		return tok, failure{}, nil
	}
	turn, cancel := context.WithTimeout(ctx, share(ctx, turnPatience))
	release := file.turn(turn)
	cancel()
	defer release()
	if tok, ok := c.leftToken(file, trial); ok {
		return tok, failure{}, nil
	}
	if trial {
		file.remove() // it is of no use, and to be so for nobody if none takes its place
	}
	c.roundTrips.Add(1)
	resp, err := wire.Authenticate(ctx, conn, &wire.AuthenticateRequest{Name: c.username, Password: password})
	off := errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled)
	if err != nil && !off {
		return token{}, judge(m.url, err, false, true), err
	}
	var tok token
	if !off {
		tok.text = resp.Token
		file.leave(tok.text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token, c.noAuth = tok, off
	return tok, failure{}, nil
}

// leftToken is the file's, where it is worth a trial.
func (c *Client) leftToken(file *tokenFile, trial bool) (token, bool) {
	if !trial || file == nil {
		return token{}, false
	}
	text := file.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case text == "" || text == c.useless:
		return token{}, false
	case text == c.token.text: // another request was faster
		return c.token, true
	case c.trials == maxTrials:
		return token{}, false
	}
	c.trials++
	c.token, c.noAuth = token{text, true}, false
	return c.token, true
}

// tokenServed notes that etcd knows the token.
func (c *Client) tokenServed(used token) {
	if !used.left {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token.text == used.text {
		c.token.left = false
	}
}

// forgetToken notes that etcd doesn't know the token, or that there is none and it wants one.
func (c *Client) forgetToken(used token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if used.text != "" {
		c.useless = used.text
	}
	if c.token.text == used.text {
		c.token, c.noAuth = token{}, false
	}
}

// share is d, or a quarter of what is left until ctx ends.
func share(ctx context.Context, d time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(d, time.Until(deadline)/4)
	}
	return d
}
