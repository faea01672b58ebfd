// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/calico-go/calico/pkg/ipam"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/store"
	"github.com/containernetworking/cni/pkg/types"
)

// The error codes of both plugins. Codes below 100 are from the CNI specification, codes from 100 on are our own.
//
//	  1  the cniVersion of the configuration is not supported
//	  4  an environment variable (CNI_COMMAND, CNI_NETNS, …) is missing or wrong
//	  5  reading stdin, writing the result, or a file failed
//	  6  the network configuration is not JSON, or larger than is sensible
//	  7  a field of the network configuration is missing or wrong
//	 11  not now: etcd is unreachable, not ready or has limits below its defaults, the agent
//	     didn't confirm in time, or this node's name may be another host's
//	 50  STATUS: an ADD would fail now
//	 51  STATUS: an ADD would fail now, and pods that exist may have limited connectivity
//	100  a bug in the plugin
//	101  etcd refuses the user, password or certificate
//	102  etcd takes no writes (its space alarm is raised)
//	103  no pool to take an address from
//	104  every address of the pools is in use
//	105  the address that was asked for is in use, is in no pool, or comes on top of others,
//	     or cannot be freed because an endpoint has it
//	106  the interface name is taken
//	107  CHECK found a difference
//	108  the kernel refused a change
//	109  the agent refused the endpoint
//	110  data in etcd that this call needs does not parse
const (
	CodeVersion     = types.ErrIncompatibleCNIVersion
	CodeEnvironment = types.ErrInvalidEnvironmentVariables
	CodeIO          = types.ErrIOFailure
	CodeDecode      = types.ErrDecodingFailure
	CodeConfig      = types.ErrInvalidNetworkConfig
	CodeTryAgain    = types.ErrTryAgainLater
	CodeUnavailable = types.ErrPluginNotAvailable
	CodeLimited     = types.ErrLimitedConnectivity
)

// Our own codes.
const (
	CodeInternal uint = 100 + iota
	CodeAuth
	CodeReadOnly
	CodeNoPool
	CodeExhausted
	CodeAddress
	CodeInterface
	CodeCheck
	CodeKernel
	CodeRejected
	CodeData
)

// Error is what a call fails with: CNI's error object.
type Error struct {
	Code uint
	Text string // one sentence: what, and why
	Hint string // what to do about it
	Err  error  // the cause, for errors.Is and As; may be nil
}

// Error returns the sentence and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Text
	}
	return e.Text + "; " + e.Hint
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fail returns an error with the given cause.
func Fail(code uint, err error, hint string) *Error {
	// errors.Join puts each error on a line of its own.
	return &Error{Code: code, Text: strings.ReplaceAll(err.Error(), "\n", "; "), Hint: hint, Err: err}
}

// Failf returns an error with a formatted text. Its cause is what %w in format names, if any.
func Failf(code uint, hint, format string, args ...any) *Error {
	return Fail(code, fmt.Errorf(format, args...), hint)
}

// Explain turns any error into one with a code and a hint.
func Explain(err error) *Error {
	e := classify(err)
	if e.Hint == "" {
		hinted := *e
		hinted.Hint = lastHint(e.Code)
		e = &hinted
	}
	return e
}

// lastHint returns the hint for an error whose cause is not known more precisely.
func lastHint(code uint) string {
	switch code {
	case CodeIO:
		return "check what it names: permissions, and room on the disk"
	case CodeKernel:
		return "look at the kernel's log, dmesg; then try again"
	case CodeData:
		return "`etcdctl get` shows the value: correct it. A block that is deleted has its addresses given again"
	case CodeInternal:
		return "report it, with the log"
	}
	// The codes of other plugins are their own.
	return LookAtIPAM
}

// LookAtIPAM is the hint for an error of an IPAM plugin that comes without one.
const LookAtIPAM = "look at the ipam section of the network configuration, and at what its plugin keeps"

func classify(err error) *Error {
	var ours *Error
	var theirs *types.Error
	var noPool *ipam.NoPoolError
	var unknown *ipam.UnknownPoolError
	var unavailable *ipam.UnavailableError
	var invalid *ipam.InvalidError
	var exhausted *ipam.ExhaustedError
	var taken *ipam.TakenError
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &theirs):
		// An error from a plugin that we delegated to keeps its own code.
		return &Error{Code: theirs.Code, Text: theirs.Msg, Hint: theirs.Details, Err: err}
	case errors.As(err, &noPool):
		return Fail(CodeNoPool, err, "make a pool, as the README's page on installing says, or correct ipv4_pools and ipv6_pools of the network configuration")
	case errors.As(err, new(*ipam.UnknownNamespaceError)):
		return Fail(CodeTryAgain, err, "check that calico-controllers runs, and its log; then try again")
	case errors.As(err, &unknown):
		return Fail(CodeNoPool, err, "correct ipv4_pools and ipv6_pools of the network configuration, or the annotations of the pod")
	case errors.As(err, &unavailable):
		return Fail(CodeAddress, err, "ask for another address")
	case errors.As(err, &invalid):
		return Fail(CodeData, err, "")
	case errors.As(err, &exhausted) && exhausted.Fixed:
		return Fail(CodeExhausted, err, "set auto_allocate_blocks in "+model.IPAMConfigKey{}.Path()+" to true, or delete pods of this node")
	case errors.As(err, &exhausted):
		return Fail(CodeExhausted, err, "add a pool, or delete pods")
	case errors.As(err, &taken) && taken.Endpoint != "":
		return Fail(CodeAddress, err, "ask for another address, or delete the endpoint if its pod is gone")
	case errors.As(err, &taken):
		return Fail(CodeAddress, err, "ask for another address, or release this one")
	case errors.Is(err, store.ErrDenied):
		return Fail(CodeAuth, err, "grant it, or check etcd_username of the network configuration")
	case errors.Is(err, store.ErrAuth):
		return Fail(CodeAuth, err, "check etcd_username, etcd_password_file and the certificate files of the network configuration")
	case errors.Is(err, store.ErrLimit):
		return Fail(CodeTryAgain, err, "start etcd with wider limits; then try again")
	case errors.Is(err, store.ErrReadOnly):
		return Fail(CodeReadOnly, err, "compact and defragment etcd, then `etcdctl alarm disarm`")
	case errors.Is(err, store.ErrUnavailable):
		return Fail(CodeTryAgain, err, "see etcd_endpoints, or etcd_discovery_srv, of the network configuration; then try again")
	case errors.As(err, new(*store.ConflictError)):
		return Fail(CodeTryAgain, err, "another host changed the same data again and again: try again")
	case errors.Is(err, context.DeadlineExceeded):
		return Fail(CodeTryAgain, err, "etcd did not answer within datastore_timeout_seconds: try again")
	case errors.Is(err, context.Canceled):
		return Fail(CodeTryAgain, err, "the call was interrupted by a signal: try again")
	case errors.Is(err, os.ErrPermission):
		return Fail(CodeIO, err, "run the plugin as root")
	}
	return Fail(CodeInternal, err, "")
}

// Print writes the error as CNI's error object.
func (e *Error) Print(w io.Writer, cniVersion string) error {
	data, err := json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion,omitempty"`
		Code       uint   `json:"code"`
		Msg        string `json:"msg"`
		Details    string `json:"details,omitempty"`
	}{cniVersion, e.Code, e.Text, e.Hint}, "", "    ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// Bug returns the error for a panic.
func Bug(r any) error {
	return Failf(CodeInternal, "report it, with the log", "this is a bug in the plugin: %v", r)
}
