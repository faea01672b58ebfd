// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strings"

	"github.com/calico-go/calico/pkg/model"
)

// By says who writes or deletes a resource: an object of the Kubernetes API, or, by the zero value, the operator. A resource that an object
// makes is that object's.
type By struct {
	UID      string // of the object
	Created  string // when it was made (RFC 3339)
	TakeOver bool   // whose the resource is doesn't matter: it becomes the writer's
	Again    bool   // the object has made it before: what has no owner any more, somebody else has overwritten
}

// was returns what is stored of a resource's owner; old may be nil.
func (By) was(old *Stored) model.Meta {
	if old == nil {
		return model.Meta{}
	}
	meta := metaOf(old)
	return model.Meta{Owner: meta.Owner, Created: meta.Created}
}

// meta returns what becomes of that.
func (b By) meta(old *Stored) model.Meta {
	was := b.was(old)
	switch {
	case b.UID != "":
		return model.Meta{Owner: model.OwnerAPI + b.UID, Created: b.Created}
	case b.TakeOver && was != (model.Meta{}):
		return model.Meta{Owner: model.OwnerOperator}
	}
	return was
}

// OwnedByAPI reports whether an object of the Kubernetes API makes the resource. Its uid and when it was made are in Metadata.
func (s *Stored) OwnedByAPI() bool { return strings.HasPrefix(metaOf(s).Owner, model.OwnerAPI) }

// TakenOver reports whether the operator has taken the resource from an object, which may only take it back if it says so.
func (s *Stored) TakenOver() bool { return metaOf(s).Owner == model.OwnerOperator }

// OwnedError says that a resource is another's.
type OwnedError struct {
	Title string
	API   bool // it is an object's of the Kubernetes API
	kind  string
}

// Error says what to do about it.
func (e *OwnedError) Error() string {
	if e.API {
		return fmt.Sprintf("%s is managed in Kubernetes: use kubectl with %s.projectcalico.org, or --take-over", e.Title, e.kind)
	}
	return e.Title + " was written by calicoctl, and is another: delete one of the two, or annotate this one with projectcalico.org/take-over=true"
}

func (k *Kind) owned(s *Stored, api bool) error {
	return &OwnedError{s.Title(), api, strings.ToLower(k.Plural)}
}

// within replaces labels or annotations by those stored if they have them all: tools that apply objects add some of their own.
func within(all *map[string]string, stored map[string]string) {
	for name, value := range stored {
		if now, there := (*all)[name]; !there || now != value {
			return
		}
	}
	*all = stored
}

// mayWrite returns an error if the stored resource is another's than the writer's. An object may have one that can't be read or is as it
// says, and that nobody has taken from it.
func (k *Kind) mayWrite(r Resource, old *Stored, entries []model.Entry) error {
	api := old.OwnedByAPI()
	switch {
	case r.By.TakeOver, api == (r.By.UID != ""):
		return nil
	case !api && (old.Err != nil || r.By.Again && metaOf(old).Owner == ""):
		return nil
	case api:
		return k.owned(old, true)
	case metaOf(old).Owner == "":
		r.By = By{}
		within(&r.Metadata.Labels, old.Metadata.Labels)
		within(&r.Metadata.Annotations, old.Metadata.Annotations)
		if change, err := k.change(r, old, entries, false); err == nil && change.Empty() {
			return nil
		}
	}
	return k.owned(old, false)
}

// mayDeleteBy returns an error if the stored resource is another's.
func (k *Kind) mayDeleteBy(by By, s *Stored) error {
	api := s.OwnedByAPI()
	if by.TakeOver || by.UID == "" && !api || by.UID != "" && metaOf(s).Owner == model.OwnerAPI+by.UID {
		return nil
	}
	return k.owned(s, api)
}
