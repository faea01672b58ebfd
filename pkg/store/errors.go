// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/calico-go/calico/pkg/model"
)

var (
	// ErrUnavailable is in the chain of an error when no member of etcd could
	// serve the request in time. The text names each member and its reason.
	ErrUnavailable = errors.New("etcd is unavailable")
	// ErrAuth is in the chain when etcd refused the user, the password or the
	// certificate, or this client refused etcd's certificate.
	ErrAuth = errors.New("etcd access refused")
	// ErrDenied is in the chain, with ErrAuth, when no role of the user has the
	// permission for what was asked. The text names the first key or prefix that lacks it.
	ErrDenied = fmt.Errorf("%w: permission denied", ErrAuth)
	// ErrReadOnly is in the chain when etcd takes no writes: its space quota is used up (alarm NOSPACE).
	ErrReadOnly = errors.New("etcd is read-only")
	// ErrLimit is in the chain when the request is more than etcd is set to take.
	ErrLimit = errors.New("etcd's limits are too narrow")
	// ErrUnknownOutcome is in the chain when a commit was sent and no answer
	// came: it took effect or will, or never does. Read again before deciding.
	ErrUnknownOutcome = errors.New("it is not known whether the write took effect")
	// ErrLeaseEnded is in the chain when the lease of a commit has ended.
	ErrLeaseEnded = errors.New("the lease has ended")

	errClosed = errors.New("the etcd client is closed")
)

// ConflictError says which compare of a commit failed first. Nothing was written.
type ConflictError struct {
	Key        model.Key
	Prefix     string // instead of Key: a key below it was created at revision Have, after Want
	Want, Have int64  // revisions; 0: the key does not exist
}

// Error names the key and both revisions.
func (e *ConflictError) Error() string {
	if e.Key == nil {
		return fmt.Sprintf("conflict below %s: a key was created at revision %d, after %d: read again and retry", e.Prefix, e.Have, e.Want)
	}
	return fmt.Sprintf("conflict at %s: want %s, have %s: read again and retry", e.Key.Path(), revisionText(e.Want), revisionText(e.Have))
}

func revisionText(r int64) string {
	if r == 0 {
		return "no such key"
	}
	return "revision " + strconv.FormatInt(r, 10)
}

// next is what follows a failed attempt.
type next int

const (
	stop      next = iota // the answer is final
	renew                 // authenticate again, then ask the same member
	later                 // as renew after a pause, as often as it takes
	elsewhere             // another member, or this one later
	others                // another member: this one would answer the same again
)

// failure is one attempt that did not succeed.
type failure struct {
	member string
	reason string
	err    error // as received
	kind   error // one of the sentinels above, nil for errors of the request itself
	next   next
	sent   bool // the request may have reached etcd
}

// A verdict is what an answer of etcd means for the request, which had no effect.
type verdict struct {
	kind error
	next next
	hint string
}

var verdicts = map[error]verdict{
	rpctypes.ErrNoSpace:          {ErrReadOnly, stop, ": the space quota is used up: compact and defragment etcd, then etcdctl alarm disarm"},
	rpctypes.ErrTooManyOps:       {ErrLimit, others, fmt.Sprintf(": start etcd with --max-txn-ops=%d or more, or without that flag", maxOps)},
	rpctypes.ErrRequestTooLarge:  {ErrLimit, others, ": start etcd with a greater --max-request-bytes, 1572864 where it is not set"},
	rpctypes.ErrPermissionDenied: {ErrDenied, stop, ""},
	rpctypes.ErrAuthFailed:       {ErrAuth, stop, ": check the etcd user, its roles and the password file"},
	rpctypes.ErrUserEmpty:        {ErrAuth, renew, ""},
	rpctypes.ErrInvalidAuthToken: {ErrAuth, renew, ""},
	rpctypes.ErrAuthOldRevision:  {ErrUnavailable, later, ""}, // somebody's rights are changing
	rpctypes.ErrNoLeader:         {ErrUnavailable, elsewhere, ""},
	rpctypes.ErrTooManyRequests:  {ErrUnavailable, elsewhere, ""},
	learner:                      {ErrUnavailable, others, ": promote this member (etcdctl member promote), or leave it out of the endpoints"},

	// Answers to the request, which any member would give. The callers know what to do with them.
	rpctypes.ErrCompacted:        {nil, stop, ""},
	rpctypes.ErrFutureRev:        {nil, stop, ""},
	rpctypes.ErrLeaseNotFound:    {nil, stop, ""},
	rpctypes.ErrAuthNotEnabled:   {nil, stop, ""},
	rpctypes.ErrUserAlreadyExist: {nil, stop, ""},
	rpctypes.ErrRoleAlreadyExist: {nil, stop, ""},
	rpctypes.ErrUserNotFound:     {nil, stop, ""},
	rpctypes.ErrRoleNotFound:     {nil, stop, ""},
}

// learner is the answer of a member that doesn't vote yet.
var learner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// judge says what an error of etcd or grpc means. sent tells whether a stream for the request existed; user whether a user
// name is configured.
func judge(member string, err error, sent, user bool) failure {
	if final, ok := errors.AsType[finalError](err); ok {
		err = final.error
	}
	f := failure{member: member, reason: reason(err), err: err, sent: sent}
	known, _ := errors.AsType[rpctypes.EtcdError](rpctypes.Error(err))
	v, ok := verdicts[known]
	if !ok && isTooLarge(err) {
		v, ok = verdicts[rpctypes.ErrRequestTooLarge], true
	}
	if ok {
		f.kind, f.next, f.sent = v.kind, v.next, false
		f.reason += v.hint
		if v.kind == nil {
			f.err = known
		}
		if v.next == renew && !user {
			f.next = stop
			f.reason += ": etcd wants a user: set the etcd user name and password file, or a client certificate of a user"
		}
		return f
	}
	f.kind, f.next = ErrUnavailable, elsewhere
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		if !sent && isCertificateText(f.reason) {
			f.kind, f.next = ErrAuth, others
		}
	default: // whatever answers there has not done what was asked, and won't
		f.next, f.sent = others, false
	}
	return f
}

// isTooLarge reports whether etcd's gRPC refused a request unread: it takes 512 KiB more than etcd does.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max")
}

// isCertificateText distinguishes a handshake that one side refused from one that was cut off. grpc returns texts, not
// errors.
func isCertificateText(s string) bool {
	return strings.Contains(s, "x509: ") || strings.Contains(s, "tls: ")
}

// isRefusedText reports whether nothing listens at the member's address.
func isRefusedText(s string) bool {
	return strings.HasPrefix(s, "dial ") && (strings.HasSuffix(s, ": connection refused") || strings.HasSuffix(s, ": no such file or directory"))
}

// isCutOff reports whether the other side closed a connection while it was set up.
func isCutOff(s string) bool {
	return strings.Contains(s, "broken pipe") || strings.Contains(s, "connection reset by peer") || strings.HasSuffix(s, "EOF")
}

// reason is an error's text without grpc's wrapping.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	st, ok := status.FromError(err)
	if !ok {
		return err.Error()
	}
	s := st.Message()
	if i := strings.Index(s, `connection error: desc = "`); i >= 0 {
		quoted := s[i+len(`connection error: desc = `):]
		if p, err := strconv.QuotedPrefix(quoted); err == nil {
			if u, err := strconv.Unquote(p); err == nil {
				s = u
			}
		}
		for _, p := range []string{"transport: Error while dialing: ", "transport: ", "authentication handshake failed: "} {
			s = strings.TrimPrefix(s, p)
		}
		if alert, ok := strings.CutPrefix(s, "error reading server preface: "); ok && isCertificateText(alert) {
			return alert // read by whom is chance
		}
		if s == context.DeadlineExceeded.Error() || strings.HasSuffix(s, net.ErrClosed.Error()) {
			return "no answer" // to TLS, or to HTTP/2: grpc itself has closed the connection
		}
		return s
	}
	if st.Code() == codes.DeadlineExceeded {
		return "no answer"
	}
	return s
}

// failures are the last failure of each member, in the order met.
type failures []failure

func (fs *failures) note(f failure) {
	for i, old := range *fs {
		if old.member != f.member {
			continue
		}
		if f.reason == "no answer" && !f.sent && old.reason != "no answer" {
			return // the deadline came while it tried again: keep the cause
		}
		if isCutOff(f.reason) && !f.sent && old.next == others {
			// In TLS 1.3 the server refuses a client's certificate when the
			// client already writes, so the refusal is sometimes lost.
			return
		}
		(*fs)[i] = f
		return
	}
	*fs = append(*fs, f)
}

// refused reports whether each of n members gave an answer that it would give again, and of which kind they are.
func (fs failures) refused(n int) (kind error, all bool) {
	for i, f := range fs {
		if f.next != others {
			return nil, false
		}
		if i > 0 && f.kind != kind {
			kind = ErrUnavailable
		} else {
			kind = f.kind
		}
	}
	return kind, len(fs) >= n
}

// otherScheme reports whether a member hung up as one that expects https does when it gets http, or the other way round.
func (fs failures) otherScheme() bool {
	for _, f := range fs {
		plain := strings.HasPrefix(f.member, "http:") && strings.Contains(f.reason, "server preface")
		if plain || strings.HasPrefix(f.member, "https:") && isCutOff(f.reason) {
			return true
		}
	}
	return false
}

func (fs failures) String() string {
	var parts []string
	for _, f := range fs {
		parts = append(parts, strings.TrimPrefix(f.member+": "+f.reason, ": "))
	}
	return strings.Join(parts, "; ")
}
