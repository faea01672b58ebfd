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
	// ErrUnavailable is in an error's chain if no member of etcd could serve the request in time. The text lists each member with
	// its reason.
	ErrUnavailable = errors.New("etcd is unavailable")
	// ErrAuth is in an error's chain if etcd refused the user, the password or the certificate, or this client refused etcd's
	// certificate.
	ErrAuth = errors.New("etcd access refused")
	// ErrDenied, which wraps ErrAuth, is in an error's chain if no role of the user has the permission for the request. The text
	// names the first key or prefix without permission.
	ErrDenied = fmt.Errorf("%w: permission denied", ErrAuth)
	// ErrReadOnly is in an error's chain if etcd takes no writes because its space quota is used up (alarm NOSPACE).
	ErrReadOnly = errors.New("etcd is read-only")
	// ErrLimit is in an error's chain if the request exceeds etcd's configured limits.
	ErrLimit = errors.New("etcd's limits are too narrow")
	// ErrUnknownOutcome is in an error's chain if a commit was sent and no answer came: it took effect, or will, or never will.
	// Read again before deciding.
	ErrUnknownOutcome = errors.New("it is not known whether the write took effect")
	// ErrLeaseEnded is in an error's chain if the lease of a commit has ended.
	ErrLeaseEnded = errors.New("the lease has ended")

	errClosed = errors.New("the etcd client is closed")
)

// ConflictError reports the first compare of a commit that failed. Nothing was written.
type ConflictError struct {
	Key        model.Key
	Prefix     string // instead of Key: a key below it was created at revision Have, later than Want
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

// next says what to do after a failed attempt.
type next int

const (
	stop      next = iota // the answer is final
	renew                 // authenticate again, then ask the same member
	later                 // like renew, but after a pause, and without a limit
	elsewhere             // another member, or this one later
	others                // another member: this one would give the same answer again
)

// failure is one attempt that did not succeed.
type failure struct {
	member string
	reason string
	err    error // as received
	kind   error // one of the sentinels above; nil for errors of the request itself
	next   next
	sent   bool // the request may have reached etcd
}

// A verdict is the meaning of an answer with which etcd refused a request.
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
	rpctypes.ErrAuthOldRevision:  {ErrUnavailable, later, ""}, // permissions are being changed
	rpctypes.ErrNoLeader:         {ErrUnavailable, elsewhere, ""},
	rpctypes.ErrTooManyRequests:  {ErrUnavailable, elsewhere, ""},
	learner:                      {ErrUnavailable, others, ": promote this member (etcdctl member promote), or leave it out of the endpoints"},

	// Answers that any member would give. The callers handle them.
	rpctypes.ErrCompacted:        {nil, stop, ""},
	rpctypes.ErrFutureRev:        {nil, stop, ""},
	rpctypes.ErrLeaseNotFound:    {nil, stop, ""},
	rpctypes.ErrAuthNotEnabled:   {nil, stop, ""},
	rpctypes.ErrUserAlreadyExist: {nil, stop, ""},
	rpctypes.ErrRoleAlreadyExist: {nil, stop, ""},
	rpctypes.ErrUserNotFound:     {nil, stop, ""},
	rpctypes.ErrRoleNotFound:     {nil, stop, ""},
}

// learner is the answer of a non-voting member.
var learner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// judge interprets an error of etcd or grpc. sent says whether there was a stream for the request, user whether a user
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
	default: // whatever answers there has not executed the request, and won't
		f.next, f.sent = others, false
	}
	return f
}

// isTooLarge reports whether etcd's gRPC layer refused a request unread; its limit is 512 KiB above etcd's own.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max")
}

// isCertificateText distinguishes a handshake that one side refused from one that was cut off. It goes by the text
// because grpc doesn't return the errors.
func isCertificateText(s string) bool {
	return strings.Contains(s, "x509: ") || strings.Contains(s, "tls: ")
}

// isRefusedText reports whether nothing listens at the member's address.
func isRefusedText(s string) bool {
	return strings.HasPrefix(s, "dial ") && (strings.HasSuffix(s, ": connection refused") || strings.HasSuffix(s, ": no such file or directory"))
}

// isCutOff reports whether the other side closed a connection during its setup.
func isCutOff(s string) bool {
	return strings.Contains(s, "broken pipe") || strings.Contains(s, "connection reset by peer") || strings.HasSuffix(s, "EOF")
}

// reason returns an error's text without grpc's wrapping.
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
			return alert // who read it is chance
		}
		if s == context.DeadlineExceeded.Error() || strings.HasSuffix(s, net.ErrClosed.Error()) {
			return "no answer" // no TLS or HTTP/2 answer: grpc itself closed the connection
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
			return // the deadline came during a retry: keep the cause
		}
		if isCutOff(f.reason) && !f.sent && old.next == others {
			// In TLS 1.3 the server refuses a client's certificate when the client is already writing, so the refusal
			// is sometimes lost.
			return
		}
		(*fs)[i] = f
		return
	}
	*fs = append(*fs, f)
}

// refused reports whether each of n members gave an answer that it would give again, and the kind of these answers.
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

// otherScheme reports whether a member hung up like one that expects https but gets http, or the other way round.
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
