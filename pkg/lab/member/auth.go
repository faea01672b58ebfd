// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver"

	"github.com/calico-go/calico/pkg/lab"
)

// enableAuth creates the users and enables authentication. All members of a cluster may do so concurrently, and again
// after a restart.
func enableAuth(ctx context.Context, server *etcdserver.EtcdServer, users []lab.MemberUser) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, u := range users {
		role := "root"
		if u.Prefix != "" {
			role = u.Name
		}
		if server.AuthStore().IsAuthEnabled() {
			return nil // another member has done all this
		}
		_, err := server.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: role})
		if err != nil && !errors.Is(err, auth.ErrRoleAlreadyExist) {
			return fmt.Errorf("add role %s: %w", role, err)
		}
		if u.Prefix != "" {
			_, err = server.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: &authpb.Permission{
				PermType: authpb.READWRITE, Key: []byte(u.Prefix), RangeEnd: prefixEnd([]byte(u.Prefix)),
			}})
			if err != nil {
				return fmt.Errorf("grant %s to role %s: %w", u.Prefix, role, err)
			}
		}
		_, err = server.UserAdd(ctx, &pb.AuthUserAddRequest{Name: u.Name, Password: u.Password, Options: &authpb.UserAddOptions{}})
		if err != nil && !errors.Is(err, auth.ErrUserAlreadyExist) {
			return fmt.Errorf("add user %s: %w", u.Name, err)
		}
		if _, err = server.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: u.Name, Role: role}); err != nil {
			return fmt.Errorf("grant role %s to user %s: %w", role, u.Name, err)
		}
	}
	_, err := server.AuthEnable(ctx, &pb.AuthEnableRequest{})
	return err
}
