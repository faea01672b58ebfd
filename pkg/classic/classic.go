// SPDX-License-Identifier: Apache-2.0

// Package classic implements the Endpoint, ACL and Network APIs of 2014: their messages, and the three roles Felix, ACL
// manager and plugin. Each role is a state machine: a method takes an event and the time, and returns the actions that
// follow; Next says when to call Tick if nothing else happens. Messages are read tolerantly and written exactly.
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

// Topics of publications; those of ACLs are the IDs of endpoints.
const (
	TopicGroups           = "groups"
	TopicNetworkHeartbeat = "networkheartbeat"
	TopicACLHeartbeat     = "aclheartbeat"
)

// Action is what a state machine has its owner do: one of the types below. They are done in order.
type Action any

type (
	// Reply answers the request that From stands for.
	Reply struct {
		From any
		Body []byte
	}
	// Ask sends a request to a peer, which answers it or is lost: "plugin" or "acl" for Felix, "plugin" for the ACL
	// manager, a host for the plugin.
	Ask struct {
		Peer string
		Body []byte
	}
	// Publish sends a publication to whoever subscribed to the topic.
	Publish struct {
		Topic string
		Body  []byte
	}
	// Subscribe and Unsubscribe change what a peer publishes to this role.
	Subscribe   struct{ Topic string }
	Unsubscribe struct{ Topic string }
	// Reconnect makes new sockets to a peer, as Ask names it: a request is outstanding no more, subscriptions stay.
	Reconnect struct{ Peer string }
	// Connect makes a socket to a host, instead of the one before; Disconnect closes it.
	Connect    struct{ Host string }
	Disconnect struct{ Host string }
	// Log says what a person may want to know; Problem that it is something to be put right.
	Log struct {
		Problem bool
		Text    string
	}
	// List has what is wrong with something listed until it is told again, with Err nil where nothing is.
	List struct {
		About string
		Err   error
	}
)

// maxPublication bounds a publication, in bytes: what who gets it takes.
const maxPublication = 1<<20 - 1<<10

// AboutResync is what List calls a resynchronisation of Felix that didn't succeed.
const AboutResync = "resynchronisation with the plugin"

// listed are what is wrong with something.
type listed map[string]bool

// list is what has err listed; nothing where there is nothing to say.
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

// timestamp writes a time as seconds with a fraction.
func timestamp(now time.Time) json.Number {
	ms := now.UnixMilli()
	return json.Number(fmt.Sprintf("%d.%03d", ms/1000, ms%1000))
}

// encode writes a message. Its types always can be.
func encode(message any) []byte {
	b, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", message, err))
	}
	return b
}

// response is what is said of a request.
type response struct {
	Type    string `json:"type"`
	RC      string `json:"rc"`
	Message string `json:"message"`
}

// A fieldError says which field of a message is wrong.
type fieldError struct {
	field string
	err   error // nil: it is missing
}

func (e *fieldError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("Missing %q field", e.field)
	}
	return fmt.Sprintf("Invalid %q field: %v", e.field, e.err)
}

// object is a message, or a part of one, whose fields are read one by one.
type object map[string]json.RawMessage

// parse reads a message. Its type is "" where that can't be told.
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

// text reads a string that may not be empty.
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

// optionalText is "" where the field is null or missing.
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

// list reads a list, nil where the field is null or missing.
func (o object) list(field string) (list []json.RawMessage, err error) {
	if o.null(field) {
		return nil, nil
	}
	if json.Unmarshal(o[field], &list) != nil {
		return nil, &fieldError{field, errors.New("want a list")}
	}
	return list, nil
}

// object reads an object, nil where the field is null or missing.
func (o object) object(field string) (in object, err error) {
	if o.null(field) {
		return nil, nil
	}
	if json.Unmarshal(o[field], &in) != nil {
		return nil, &fieldError{field, errors.New("want an object")}
	}
	return in, nil
}

// number reads a whole number, or a string of one.
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

// outcome is what the response to a request says; "" where it is without rc.
func (o object) outcome() (rc, message string, err error) {
	if rc, err = o.optionalText("rc"); err != nil {
		return "", "", err
	}
	message, err = o.optionalText("message")
	return rc, message, err
}
