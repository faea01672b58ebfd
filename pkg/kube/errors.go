// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"net/url"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	// ErrDenied is in the chain of an error when the API refused the client, or the request. The text names the verb and the
	// kind.
	ErrDenied = errors.New("access to the Kubernetes API refused")
	// ErrChanged is in the chain when an object to be written has changed since it was read: read it again.
	ErrChanged = errors.New("the object has changed")
	// ErrNotServed is in the chain when the API doesn't know the kind at all.
	ErrNotServed = errors.New("the Kubernetes API does not serve this kind")
)

// failure is an error of the API that a caller can tell from others. Its text is the API's.
type failure struct {
	text string
	kind error
	err  error
}

// Error says what was requested, why it failed and what to do.
func (f *failure) Error() string { return f.text }

// Unwrap returns one of the errors above, os.ErrNotExist or os.ErrExist, and the API's own error.
func (f *failure) Unwrap() []error { return []error{f.kind, f.err} }

// explain returns the error of a request. what names the request; name is the object's, "" for several objects.
//
// That an object doesn't exist leads to deletions elsewhere, so only the API's own statement about this very object counts: a
// proxy's page, or an API that doesn't know the kind yet, has the same status.
func explain(what, name string, err error) error {
	if err == nil {
		return nil
	}
	f := &failure{text: what + ": " + err.Error(), err: err}
	var asked *url.Error
	if errors.As(err, &asked) {
		f.text = what + ": " + asked.Err.Error() // without the URL, which differs each time
	}
	switch {
	case apierrors.IsNotFound(err):
		f.kind = ErrNotServed
		if name != "" && namedByAPI(err, name) {
			f.kind = os.ErrNotExist
		}
	case apierrors.IsAlreadyExists(err):
		f.kind = os.ErrExist
	case apierrors.IsConflict(err):
		f.kind = ErrChanged
	case apierrors.IsForbidden(err):
		f.kind = ErrDenied
		f.text += ": give this account the right: Calico's own have theirs by the manifests' ClusterRoles"
	case apierrors.IsUnauthorized(err):
		f.kind = ErrDenied
		f.text += ": check the token or the certificate of this client"
	default:
		f.kind = err
	}
	return f
}

// namedByAPI reports whether a status is the API's own and concerns the object of that name.
func namedByAPI(err error, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	if d == nil || d.Name != name {
		return false
	}
	for _, c := range d.Causes {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return false
		}
	}
	return true
}
