// SPDX-License-Identifier: Apache-2.0

// Package classic implements the Endpoint, ACL and Network APIs of 2014: their messages, and the three roles Felix, ACL
// manager and plugin. Each role is a state machine: a method takes an event and the time, and returns the resulting
// actions; Next says when to call Tick if nothing else happens. Messages are read tolerantly and written exactly.
package classic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Types of messages.
const (
	TypeCreated   = "ENDPOINTCREATED"
	TypeUpdated   = "ENDPOINTUPDATED"
	TypeDestroyed = "ENDPOINTDESTROYED"
	TypeResync    = "RESYNCSTATE"
	TypeHeartbeat = "HEARTBEAT"
	TypeGetACL    = "GETACLSTATE"
	TypeACL       = "ACLUPDATE"
	TypeGetGroups = "GETGROUPS"
	TypeGroup     = "GROUPUPDATE"
)

// Return codes.
const (
	Success     = "SUCCESS"
	Invalid     = "INVALID"
	NotExist    = "NOTEXIST"
	Failure     = "FAILURE"
	NoInterface = "ENOINTERFACE"
)

// Topics of publications. The topics of ACLs are the IDs of endpoints.
const (
	TopicGroups           = "groups"
	TopicNetworkHeartbeat = "networkheartbeat"
	TopicACLHeartbeat     = "aclheartbeat"
)

// Action is an action for the owner of a state machine: one of the types below. Actions must be done in order.
type Action any

type (
	// Reply answers the request identified by From.
	Reply struct {
		From any
		Body []byte
	}
	// Ask sends a request to a peer, which answers it or is lost. The peer is "plugin" or "acl" for Felix, "plugin" for
	// the ACL manager, and a host for the plugin.
	Ask struct {
		Peer string
		Body []byte
	}
	// Publish sends a publication to all subscribers of the topic.
	Publish struct {
		Topic string
		Body  []byte
	}
	// Subscribe and Unsubscribe change what a peer publishes to this role.
	Subscribe   struct{ Topic string }
	Unsubscribe struct{ Topic string }
	// Reconnect makes new sockets to a peer, named as in Ask: no request is outstanding any more, subscriptions stay.
	Reconnect struct{ Peer string }
	// Connect makes a socket to a host, replacing an earlier one; Disconnect closes it.
	Connect    struct{ Host string }
	Disconnect struct{ Host string }
	// Log reports something that a person may want to know. Problem says that it should be corrected.
	Log struct {
		Problem bool
		Text    string
	}
	// List lists a problem with something until a later List with Err nil.
	List struct {
		About string
		Err   error
	}
)

// maxPublication bounds a publication, in bytes, to what subscribers accept.
const maxPublication = 1<<20 - 1<<10

// AboutResync is the About of a List for a failed resynchronisation of Felix.
const AboutResync = "resynchronisation with the plugin"

// listed has the things with a listed problem.
type listed map[string]bool

// list returns the action that lists err, or nothing if there is no change to report.
func (l listed) list(about string, err error) []Action {
	if err == nil && !l[about] {
		return nil
	}
	if l[about] = true; err == nil {
		delete(l, about)
	}
	return []Action{List{about, err}}
}

func note(format string, args ...any) Log { return Log{Text: fmt.Sprintf(format, args...)} }

func problem(format string, args ...any) Log {
	return Log{Problem: true, Text: fmt.Sprintf(format, args...)}
}

// timestamp returns a time as seconds with a fraction.
func timestamp(now time.Time) json.Number {
	ms := now.UnixMilli()
	return json.Number(fmt.Sprintf("%d.%03d", ms/1000, ms%1000))
}

// encode encodes a message. All message types can be encoded.
func encode(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", message, err))
	}
	return b
}

// response is a common response to a request.
type response struct {
	Type    string `json:"type"`
	RC      string `json:"rc"`
	Message string `json:"message"`
}

// A fieldError says which field of a message is wrong.
type fieldError struct {
	field string
	err   error // nil if it is missing
}

func (e *fieldError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("Missing %q field", e.field)
	}
	return fmt.Sprintf("Invalid %q field: %v", e.field, e.err)
}

// object is a message, or a part of one, whose fields are read one by one.
type object map[string]json.RawMessage

// parse parses a message. kind is its type, "" if unknown.
func parse(body []byte) (o object, kind string, err error) {
	if err := json.Unmarshal(body, &o); err != nil || o == nil {
		return nil, "", errors.New("the message is not a JSON object")
	}
	kind, err = o.text("type")
	return o, kind, err
}

func (o object) null(field string) bool {
	raw, ok := o[field]
	return !ok || string(raw) == "null"
}

// text reads a string, which must not be empty.
func (o object) text(field string) (string, error) {
	s, err := o.optionalText(field)
	if err == nil && s == "" {
		if !o.null(field) {
			return "", &fieldError{field, errors.New("it is empty")}
		}
		return "", &fieldError{field: field}
	}
	return s, err
}

// optionalText reads a string, "" if the field is null or missing.
func (o object) optionalText(field string) (string, error) {
	if o.null(field) {
		return "", nil
	}
	var s string
	if json.Unmarshal(o[field], &s) != nil {
		return "", &fieldError{field, errors.New("want a string")}
	}
	return s, nil
}

// list reads a list, nil if the field is null or missing.
func (o object) list(field string) (list []json.RawMessage, err error) {
	if o.null(field) {
		return nil, nil
	}
	if json.Unmarshal(o[field], &list) != nil {
		return nil, &fieldError{field, errors.New("want a list")}
	}
	return list, nil
}

// object reads an object, nil if the field is null or missing.
func (o object) object(field string) (in object, err error) {
	if o.null(field) {
		return nil, nil
	}
	if json.Unmarshal(o[field], &in) != nil {
		return nil, &fieldError{field, errors.New("want an object")}
	}
	return in, nil
}

// number reads a whole number, possibly in a string.
func number(raw json.RawMessage, most int) (int, error) {
	text := string(raw)
	var s string
	if json.Unmarshal(raw, &s) == nil {
		text = s
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || int(n) > most {
		return 0, fmt.Errorf("%.32s: want a number from 0 to %d", raw, most)
	}
	return int(n), nil
}

// outcome returns the outcome in the response to a request; rc is "" if missing.
func (o object) outcome() (rc, message string, err error) {
	if rc, err = o.optionalText("rc"); err != nil {
		return "", "", err
	}
	message, err = o.optionalText("message")
	return rc, message, err
}
