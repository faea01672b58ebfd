// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// maxMessage is the longest message, in bytes, that the API accepts in an event.
const maxMessage = 1024

// Warning records a Warning event about an object. It doesn't wait: the event is sent when the API accepts it. If the same
// was reported before, or a lot about one object, the count of that event goes up instead.
func (c *Client) Warning(about corev1.ObjectReference, reason, message string) {
	c.Event(about, corev1.EventTypeWarning, reason, message)
}

// Event is Warning for an event of either type, corev1.EventTypeNormal or corev1.EventTypeWarning.
func (c *Client) Event(about corev1.ObjectReference, eventType, reason, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-len("…")], "") + "…"
	}
	c.recorder().Event(&about, eventType, reason, message)
}

func (c *Client) recorder() record.EventRecorder {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records == nil {
		c.events = record.NewBroadcaster(record.WithContext(c.logged(context.Background())))
		c.events.StartRecordingToSink(sink{c})
		c.records = c.events.NewRecorder(scheme, corev1.EventSource{Component: c.name})
	}
	return c.records
}

// sink writes events to the API.
type sink struct{ *Client }

const eventTimeout = 10 * time.Second

// send writes one event. It returns the API's own errors, the only ones that the recorder understands.
func (s sink) send(r *rest.Request, namespace string, body any) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	out := new(corev1.Event)
	return out, r.Resource("events").Namespace(namespace).Body(body).Do(ctx).Into(out)
}

// Create implements record.EventSink, as do Update and Patch.
func (s sink) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.send(s.groups[corev1.SchemeGroupVersion].Post(), e.Namespace, e)
}

func (s sink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.send(s.groups[corev1.SchemeGroupVersion].Put().Name(e.Name), e.Namespace, e)
}

func (s sink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.send(s.groups[corev1.SchemeGroupVersion].Patch(types.StrategicMergePatchType).Name(e.Name), e.Namespace, data)
}
