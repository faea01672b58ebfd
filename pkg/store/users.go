// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/calico-go/calico/pkg/model"
)

// RootUser is etcd's administrator, who has all permissions.
const RootUser = "root"

// User is a user of etcd. It has no password: etcd identifies it by the common name of its certificate.
type User struct {
	Name string
	// Write lists the prefixes below which the user may write. It may read the whole data model.
	Write []string
}

// SetUsers creates the users, gives each the role of the same name with exactly these permissions, and then enables
// authentication, so that etcd demands a user's certificate from every client. This client must be RootUser.
func (c *Client) SetUsers(ctx context.Context, users ...User) error {
	for _, u := range users {
		if err := c.SetUser(ctx, u); err != nil {
			return err
		}
	}
	if err := c.AddUser(ctx, RootUser); err != nil {
		return err
	}
	return c.administer(ctx, "enable etcd's authentication", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.AuthEnable(ctx)
		return err
	})
}

// SetUser creates a user and gives it the role of the same name with exactly these permissions. If it is interrupted,
// the next call completes it; a new user can do nothing until it can do everything.
func (c *Client) SetUser(ctx context.Context, u User) error {
	if err := c.addRole(ctx, u.Name); err != nil {
		return err
	}
	var has []*clientv3.Permission
	err := c.administer(ctx, "read etcd's role "+u.Name, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.RoleGet(ctx, u.Name)
		if err == nil {
			for _, p := range resp.Perm {
				has = append(has, (*clientv3.Permission)(p))
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	type right struct {
		prefix string
		kind   clientv3.PermissionType
	}
	wanted := []right{{model.Root, clientv3.PermissionType(clientv3.PermRead)}}
	for _, prefix := range u.Write {
		if prefix == model.Root {
			wanted = nil // etcd keeps one permission per range
		}
		wanted = append(wanted, right{prefix, clientv3.PermissionType(clientv3.PermReadWrite)})
	}
	for _, w := range wanted {
		if slices.ContainsFunc(has, func(p *clientv3.Permission) bool {
			return w.prefix == string(p.Key) && clientv3.GetPrefixRangeEnd(w.prefix) == string(p.RangeEnd) && w.kind == clientv3.PermissionType(p.PermType)
		}) {
			continue // a grant makes all clients authenticate again
		}
		err := c.administer(ctx, fmt.Sprintf("let etcd's user %s reach %s", u.Name, w.prefix), func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.RoleGrantPermission(ctx, u.Name, w.prefix, clientv3.GetPrefixRangeEnd(w.prefix), w.kind)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, p := range has {
		if slices.ContainsFunc(wanted, func(w right) bool {
			return w.prefix == string(p.Key) && clientv3.GetPrefixRangeEnd(w.prefix) == string(p.RangeEnd)
		}) {
			continue
		}
		err := c.administer(ctx, fmt.Sprintf("take from etcd's user %s what it could do at %s", u.Name, p.Key), func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.RoleRevokePermission(ctx, u.Name, string(p.Key), string(p.RangeEnd))
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.AddUser(ctx, u.Name)
}

func (c *Client) addRole(ctx context.Context, name string) error {
	err := c.administer(ctx, "make etcd's role "+name, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.RoleAdd(ctx, name)
		return err
	})
	if errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		err = nil
	}
	return err
}

// AddUser creates a user and the role of the same name if missing. A new role has no permissions.
func (c *Client) AddUser(ctx context.Context, name string) error {
	if err := c.addRole(ctx, name); err != nil {
		return err
	}
	err := c.administer(ctx, "make etcd's user "+name, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return err
	}
	return c.administer(ctx, "give its role to etcd's user "+name, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.UserGrantRole(ctx, name, name)
		return err
	})
}

// Users returns the names of etcd's users that begin with prefix.
func (c *Client) Users(ctx context.Context, prefix string) (names []string, err error) {
	err = c.administer(ctx, "list etcd's users", func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.UserList(ctx)
		if err == nil {
			names = slices.DeleteFunc(resp.Users, func(name string) bool { return !strings.HasPrefix(name, prefix) })
		}
		return err
	})
	return names, err
}

// RemoveUser deletes users and their roles if they exist.
func (c *Client) RemoveUser(ctx context.Context, names ...string) error {
	for _, name := range names {
		err := c.administer(ctx, "delete etcd's user "+name, func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.UserDelete(ctx, name)
			return err
		})
		if err == nil || errors.Is(err, rpctypes.ErrUserNotFound) {
			err = c.administer(ctx, "delete etcd's role "+name, func(ctx context.Context, client *clientv3.Client) error {
				_, err := client.RoleDelete(ctx, name)
				return err
			})
		}
		if err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
			return err
		}
	}
	return nil
}

// administer sends a request that may be repeated: doing it twice is the same as doing it once.
func (c *Client) administer(ctx context.Context, what string, send func(context.Context, *clientv3.Client) error) error {
	return c.call(ctx, request{what: what, send: send})
}

// wasteful is how many bytes of a member's file may be unused, or as many as are in use if that is more.
const wasteful = 64 << 20

// Defragment makes each member release unused space if that is most of its file. A member serves no requests meanwhile,
// so it goes through them one by one. This client's user must be RootUser. It returns how many members were
// defragmented.
func (c *Client) Defragment(ctx context.Context) (done int, err error) {
	var errs []error
	for _, m := range c.members {
		client, err := m.open()
		if err != nil {
			return done, err
		}
		status, err := client.Status(ctx, m.url)
		if err == nil && status.DbSize-status.DbSizeInUse > max(wasteful, status.DbSizeInUse) {
			if _, err = client.Defragment(ctx, m.url); err == nil {
				done++
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("defragment etcd's member %s: %w", m.url, err))
		}
	}
	return done, errors.Join(errs...)
}
