// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

const pathPod = "/v1/pod"

// maxPod bounds what is read about a pod: the API server accepts objects of 1.5 MiB, most of which isn't asked for.
const maxPod = 2 << 20

// ErrNoPod is returned if the Kubernetes API has no such pod.
var ErrNoPod = errors.New("no such pod")

// PodRequest asks about a pod. Without a name it asks only about the node.
type PodRequest struct {
	Namespace, Name string
	// UID is the pod's UID in the runtime, "" if unknown. A static pod has a different one in the API.
	UID string
}

// Pod is what a plugin needs to know about a pod and its node from the Kubernetes API.
type Pod struct {
	UID            string               `json:"uid,omitempty"`
	ServiceAccount string               `json:"serviceAccount,omitempty"`
	Labels         map[string]string    `json:"labels,omitempty"`      // all of the pod's own
	Annotations    map[string]string    `json:"annotations,omitempty"` // those known to plugins; the namespace's if the pod has none
	Ports          []model.EndpointPort `json:"-"`                     // see podAnswer
	PodCIDRs       []netip.Prefix       `json:"podCIDRs,omitempty"`    // the node's
	// Unshaped says that no plugin in the node's list limits bandwidth as the runtime asks.
	Unshaped bool `json:"unshaped,omitempty"`
}

// podAnswer is a Pod on the wire.
type podAnswer struct {
	Pod
	Ports []podPort `json:"ports,omitempty"`
}

type podPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
}

func formatPod(p Pod) podAnswer {
	a := podAnswer{Pod: p}
	for _, port := range p.Ports {
		a.Ports = append(a.Ports, podPort{port.Name, port.Protocol.String(), port.Port})
	}
	return a
}

// parsePod is the inverse of formatPod.
func parsePod(data []byte) (Pod, error) {
	var a podAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return Pod{}, err
	}
	p := a.Pod
	for i, port := range a.Ports {
		protocol, err := model.ParseProtocol(port.Protocol)
		if err != nil {
			return Pod{}, fmt.Errorf("ports[%d]: %w", i, err)
		}
		p.Ports = append(p.Ports, model.EndpointPort{Name: port.Name, Protocol: protocol, Port: port.Port})
	}
	for i, c := range p.PodCIDRs {
		if !c.IsValid() {
			return Pod{}, fmt.Errorf("podCIDRs[%d]: empty", i)
		}
	}
	return p, nil
}

func (r PodRequest) query() string {
	return url.Values{"namespace": {r.Namespace}, "name": {r.Name}, "uid": {r.UID}}.Encode()
}

// parsePodQuery is the inverse of query. Unknown parameters are allowed.
func parsePodQuery(raw string) (PodRequest, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return PodRequest{}, fmt.Errorf("query of %s: %w", pathPod, err)
	}
	r := PodRequest{Namespace: values.Get("namespace"), Name: values.Get("name"), UID: values.Get("uid")}
	if (r.Namespace == "") != (r.Name == "") {
		return PodRequest{}, fmt.Errorf("%s: parameters namespace and name belong together", pathPod)
	}
	return r, nil
}

// AskPod returns what the agent listening on the socket knows about a pod from the Kubernetes API. It returns ErrNoPod
// if the API has none, a *RejectedError if the agent doesn't read the API or can't now, and otherwise the errors of
// Wait.
func AskPod(ctx context.Context, socket string, r PodRequest) (Pod, error) {
	query := r.query()
	if deadline, ok := ctx.Deadline(); ok {
		query += withinQuery(time.Until(deadline) * 9 / 10)
	}
	status, body, err := exchange(ctx, socket, pathPod+"?"+query, maxPod)
	if err != nil {
		return Pod{}, err
	}
	if status != http.StatusOK {
		a := parseAnswer(body)
		if status == http.StatusNotFound && a.Absent {
			return Pod{}, fmt.Errorf("%w: %s", ErrNoPod, a.Reason)
		}
		return Pod{}, a.err(socket, status)
	}
	p, err := parsePod(body)
	if err != nil {
		return Pod{}, fmt.Errorf("ask the agent at %s: its answer is no pod; is another program listening there? %w", socket, err)
	}
	return p, nil
}

func podHandler(w Waiter) http.HandlerFunc {
	return func(out http.ResponseWriter, in *http.Request) {
		r, err := parsePodQuery(in.URL.RawQuery)
		if err != nil {
			reply(out, http.StatusBadRequest, answer{Reason: err.Error()})
			return
		}
		ctx, cancel := within(out, in)
		defer cancel()
		p, err := w.Pod(ctx, r)
		switch {
		case errors.Is(err, ErrNoPod):
			reply(out, http.StatusNotFound, answer{Reason: strings.TrimPrefix(err.Error(), ErrNoPod.Error()+": "), Absent: true})
		case err != nil:
			replyError(out, in, err)
		default:
			reply(out, http.StatusOK, formatPod(p))
		}
	}
}
