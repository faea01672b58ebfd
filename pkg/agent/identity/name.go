// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/calico-go/calico/pkg/model"
)

// objectionTime is how long a host that returns waits for another of its name to say
// that it lives: one that etcd answers does so at once.
const objectionTime = 5 * time.Second

// tenure is how the host stands to its name, by the live status in etcd. Whose lease
// that hangs on has the name: a key hangs on one.
//
// A host that finds its name taken claims it where it has evidence that the taker was
// itself: it writes the status under a lease of its own. A host that lives and has the
// name objects: it writes the status again. Only where nobody does, in a while, is the
// lease that was there revoked, so that nothing can be written under it any more.
type tenure struct {
	heard  bool
	status model.Entry // as last heard
	// held: the name is this host's.
	held bool
	// claiming: what was there at a revision, under the lease claimed, is to be replaced.
	claiming bool
	claimed  int64
	over     int64
	since    time.Time // since when our status is there
	// objected: somebody did, and his status has been there since.
	objected bool
	// refused: the name was another's, once.
	refused bool
}

// hear takes in what the live status is now.
func (t *tenure) hear(e model.Entry) {
	t.heard, t.status = true, e
	if !e.Exists() {
		t.objected = false
	}
}

// resync takes in a snapshot, in which the key may not be.
func (t *tenure) resync(key model.Key, entries []model.Entry) {
	for _, e := range entries {
		if e.Key == key && e.Path == key.Path() {
			return // it is heard with the others
		}
	}
	t.hear(model.Entry{Path: key.Path(), Key: key})
}

// standing is what is to be done about the name.
type standing int

const (
	nameUnknown standing = iota // nothing, until more is known
	nameOurs                    // it is the host's
	nameTake                    // nobody has it
	nameDefend                  // it is the host's, and somebody claims it
	nameClaim                   // the taker may be this host's former life
	nameAwait                   // it is claimed: somebody may yet object
	nameRefused
)

// evidence is what speaks for the status in etcd being this host's.
type evidence struct {
	isOwn, isFormer func(lease int64) bool
	// alive is the lease under which this process wrote the status, 0 = none that holds.
	alive int64
	// wrote is the revision at which it did so.
	wrote int64
	// silent: this host's status isn't to be in etcd.
	silent bool
	// address says whether the addresses that etcd has of the name are this host's;
	// known is false where the links haven't been read.
	address, known bool
}

// judge changes what follows by itself: that a name is held, that a claim failed.
func (t *tenure) judge(e evidence) standing {
	switch {
	case !t.heard:
		return nameUnknown
	case !t.status.Exists() && e.silent:
		t.held, t.claiming = true, false
		return nameOurs
	case !t.status.Exists():
		t.claiming = false
		return nameTake
	case e.isOwn(t.status.Lease) && t.claiming:
		return nameAwait
	case e.isOwn(t.status.Lease):
		t.held, t.refused = true, false
		return nameOurs
	case t.held && e.alive != 0:
		return nameDefend
	}
	t.held = false
	if t.claiming && e.wrote > t.over && t.status.Revision > e.wrote {
		t.claiming, t.objected = false, true
	}
	switch {
	case t.objected:
		return nameRefused
	case e.isFormer(t.status.Lease) || e.known && e.address:
		return nameClaim
	case !e.known:
		return nameUnknown
	}
	return nameRefused
}

// questioned says whether what is heard says that the name isn't the host's. Nothing
// that etcd says of the name may be acted upon then.
func (t *tenure) questioned(isOwn func(lease int64) bool) bool {
	return !t.held || t.status.Exists() && !isOwn(t.status.Lease)
}

// namesakeError says that another live host has this one's name.
type namesakeError struct {
	name     string
	addr     netip.Addr // its, invalid = it says none
	objected bool
}

// Error says what to do.
func (e *namesakeError) Error() string {
	has, objected := "", ""
	if e.addr.IsValid() {
		has = " and has " + e.addr.String()
	}
	if e.objected {
		objected = ", as it said when this one came: one may be a copy of the other's disk"
	}
	return fmt.Sprintf("another host that is called %s lives%s%s: give this one another name, or wait until that one's status is gone", e.name, has, objected)
}
