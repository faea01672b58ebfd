// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/calico-go/calico/pkg/daemon/mailbox"
	"github.com/calico-go/calico/pkg/kube"
	"github.com/calico-go/calico/pkg/model"
	"github.com/calico-go/calico/pkg/retry"
	"github.com/calico-go/calico/pkg/store"
)

const (
	// signerName is the signerName of agents' requests for a Node's certificate for etcd.
	signerName   = "projectcalico.org/etcd-node"
	agentAccount = "calico-node"
	// What the API server adds to a request from a pod's token; nodeExtra since Kubernetes 1.30.
	nodeExtra = "authentication.kubernetes.io/node-name"
	podExtra  = "authentication.kubernetes.io/pod-name"
	// nodeLife is how long a stolen certificate is valid, unless it is revoked.
	nodeLife = 30 * 24 * time.Hour
	// sweepEvery is how often the users of deleted Nodes are looked for.
	sweepEvery = time.Minute
	maxRequest = 8 << 10 // bytes: many times the size of an agent's
	nodePrefix = "node:"
	// revokedPrefix begins the names of users that are only markers: the node whose name follows gets no user. Newer markers also have a
	// colon and the Node's UID.
	revokedPrefix = "revoked:"
)

// nodeUser returns etcd's user of a Node. A recreated Node has another user, so a certificate kept from the former one is of no use.
func nodeUser(name, uid string) store.User {
	host := func(prefix string) string { return prefix + name + "/" }
	return store.User{Name: nodePrefix + name + ":" + uid, Write: []string{
		model.HostPrefix(name), host(model.Root + "felix/v1/host/"), host(model.Root + "bgp/v1/host/"),
		// A host claims blocks that others have left empty, borrows addresses and gives them back.
		model.Root + "ipam/v2/assignment/", model.Root + "ipam/v2/handle/", model.Root + "ipam/v2/host/",
	}}
}

// isOpen reports whether a request has no answer yet.
func isOpen(r *certificatesv1.CertificateSigningRequest) bool {
	return len(r.Status.Certificate) == 0 && !slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type != certificatesv1.CertificateApproved
	})
}

// A signer answers requests for Nodes' certificates.
type signer struct {
	name    string // signerName of the requests
	account string // account of the pods that may make them
	// open calls do with a certifier that is current. It is also called at each sweep, even if there is nothing to answer.
	open func(ctx context.Context, sweep bool, do func(certifier) error) error
}

// A certifier is an authority, and what it certifies about a Node.
type certifier struct {
	*authority
	leaf func(*corev1.Node) (leaf, error)
}

// signEtcd answers requests for etcd, and keeps etcd's users in line with the Nodes, until the context ends.
func (b *bootstrapper) signEtcd(ctx context.Context) error {
	return b.sign(ctx, signer{signerName, agentAccount, func(ctx context.Context, sweep bool, do func(certifier) error) error {
		return b.administer(ctx, func(etcd *store.Client, ca *authority) error {
			err := do(certifier{ca, func(n *corev1.Node) (leaf, error) {
				u := nodeUser(n.Name, string(n.UID))
				return leaf{name: u.Name, client: true}, admit(ctx, etcd, n.Name, u)
			}})
			if sweep {
				err = errors.Join(err, b.sweep(ctx, etcd))
			}
			return err
		})
	}})
}

// sign answers requests until the context ends.
func (b *bootstrapper) sign(ctx context.Context, s signer) error {
	group, ctx := errgroup.WithContext(ctx)
	news := mailbox.New[[]string]() // names of requests
	tell := func(names ...string) { news.Update(func(had []string) []string { return append(had, names...) }) }
	group.Go(func() error {
		// A request may have a megabyte, and a compromised node may make many: they are read a few at a time.
		ours := kube.Select{Fields: "spec.signerName=" + s.name, Page: 4}
		open := func(r *certificatesv1.CertificateSigningRequest) (names []string) {
			if isOpen(r) {
				names = []string{r.Name}
			}
			return names
		}
		return kube.Watch(ctx, b.kube, ours, open, kube.Handler[[]string]{Set: func(names []string) { tell(names...) }})
	})
	group.Go(func() error {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for said := ""; ; {
			sweep := false
			select {
			case <-ctx.Done():
				return nil
			case <-news.Ready():
			case <-tick.C:
				sweep = true
			}
			requests, _ := news.Take()
			if len(requests) == 0 && !sweep {
				continue
			}
			err := s.open(ctx, sweep, func(c certifier) error {
				var errs []error
				requests = slices.DeleteFunc(requests, func(name string) bool {
					err := b.answer(ctx, s, c, name)
					if err != nil {
						errs = append(errs, fmt.Errorf("request %s: %w", name, err))
					}
					return err == nil
				})
				return errors.Join(errs...)
			})
			if err == nil {
				said = ""
				continue
			}
			if text := err.Error(); ctx.Err() == nil && text != said {
				said = text
				b.log.Error("not all requests are answered, trying again", "err", err)
			}
			_ = retry.Wait(ctx, retryAfter)
			tell(requests...)
		}
	})
	return group.Wait()
}

// administer calls do with a client of etcd's administrator, and the authority.
func (b *bootstrapper) administer(ctx context.Context, do func(*store.Client, *authority) error) error {
	members, _, err := b.chosen(ctx)
	if err != nil {
		return err
	}
	ca, err := b.authority(ctx, membersConfig, "etcd")
	if err != nil {
		return err
	}
	cfg, done, err := b.root(ca, members)
	if err != nil {
		return fmt.Errorf("make a certificate for etcd's administrator: %w", err)
	}
	defer done()
	etcd, err := store.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }() // everything was answered
	return do(etcd, ca)
}

// refusal says why a request is denied.
type refusal string

func (r refusal) Error() string { return string(r) }

// answer approves and signs a request, or denies it, unless it has an answer. An error leaves it open.
func (b *bootstrapper) answer(ctx context.Context, s signer, c certifier, name string) error {
	r, err := kube.Get[certificatesv1.CertificateSigningRequest](ctx, b.kube, "", name)
	if errors.Is(err, os.ErrNotExist) || err == nil && !isOpen(r) {
		return nil
	}
	if err != nil {
		return err
	}
	cert, user, err := b.certify(ctx, s, c, r)
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "OfItsNode", Message: "asked for by the node's own agent", LastUpdateTime: metav1.NewTime(b.now()),
	}
	if why, denied := errors.AsType[refusal](err); denied {
		condition.Type, condition.Reason, condition.Message = certificatesv1.CertificateDenied, "Refused", why.Error()
		b.log.Warn("a request for a node's certificate is denied", "request", r.Name, "by", r.Spec.Username, "reason", why)
	} else if err != nil {
		return err
	}
	err = kube.PatchApproval(ctx, b.kube, r.Name, map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err == nil && cert != nil {
		err = kube.PatchStatus[certificatesv1.CertificateSigningRequest](ctx, b.kube, "", r.Name, map[string]any{"status": map[string]any{"certificate": cert}})
		if err == nil {
			b.log.Info("signed a node's certificate", "user", user, "request", r.Name)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was withdrawn
	}
	return err
}

// certify creates the certificate that a request asks for, and returns its user.
func (b *bootstrapper) certify(ctx context.Context, s signer, c certifier, r *certificatesv1.CertificateSigningRequest) (cert []byte, user string, err error) {
	if n := len(r.Spec.Request); n > maxRequest {
		return nil, "", refusal(fmt.Sprintf("it has %d bytes, more than %d", n, maxRequest))
	}
	name, err := b.asking(ctx, s.account, r.Spec)
	if err != nil {
		return nil, "", err
	}
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, "", refusal("it isn't in PEM")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, "", refusal(err.Error())
	}
	node, err := kube.Get[corev1.Node](ctx, b.kube, "", name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", refusal("there is no Node " + name)
	}
	if err != nil {
		return nil, "", err
	}
	l, err := c.leaf(node)
	if err == nil {
		cert, err = c.certify(l, request.PublicKey, b.now(), nodeLife)
	}
	return cert, l.name, err
}

// asking returns the Node whose agent, a pod of the account, made a request.
func (b *bootstrapper) asking(ctx context.Context, account string, spec certificatesv1.CertificateSigningRequestSpec) (node string, err error) {
	if user := "system:serviceaccount:" + namespace + ":" + account; spec.Username != user {
		return "", refusal("only " + user + " may ask")
	}
	if v := spec.Extra[nodeExtra]; len(v) == 1 {
		return v[0], nil
	}
	v := spec.Extra[podExtra]
	if len(v) != 1 {
		return "", refusal("the token that it was made with is no pod's, which would say whose node it is")
	}
	pod, err := kube.Get[corev1.Pod](ctx, b.kube, namespace, v[0])
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", refusal("its pod is gone")
	case err != nil:
		return "", err
	case pod.Spec.ServiceAccountName != account:
		return "", refusal("its pod is another account's")
	}
	return pod.Spec.NodeName, nil
}

// revoked returns the markers among users, by name of the node.
func revoked(users []string) map[string][]string {
	of := map[string][]string{}
	for _, user := range users {
		if rest, is := strings.CutPrefix(user, revokedPrefix); is {
			name, _, _ := strings.Cut(rest, ":")
			of[name] = append(of[name], user)
		}
	}
	return of
}

// admit creates etcd's user of a node, unless the node is revoked.
func admit(ctx context.Context, etcd *store.Client, node string, u store.User) error {
	check := func() error {
		users, err := etcd.Users(ctx, revokedPrefix+node)
		if err == nil && len(revoked(users)[node]) > 0 {
			return refusal("node " + node + " is revoked: once its machine is in order, undo it by calico-install revoke -undo " + node)
		}
		return err
	}
	if err := check(); err != nil {
		return err
	}
	if err := etcd.SetUser(ctx, u); err != nil {
		return err
	}
	err := check() // revoke may have listed the users before this one was created
	if _, revoked := errors.AsType[refusal](err); revoked {
		err = cmp.Or(etcd.RemoveUser(ctx, u.Name), err)
	}
	return err
}

// sweep removes the users of nodes that are deleted or revoked, and creates missing ones, as after etcd lost its data: the agents have
// certificates, and don't ask again. It also completes the users that this process did not create: a former process may have ended while
// creating them.
func (b *bootstrapper) sweep(ctx context.Context, etcd *store.Client) error {
	users, err := etcd.Users(ctx, "")
	if err != nil {
		return err
	}
	nodes, err := kube.List[corev1.Node](ctx, b.kube, kube.Select{})
	if err != nil {
		return err
	}
	wanted, revoked := map[string]*corev1.Node{}, revoked(users)
	for _, n := range nodes {
		if len(revoked[n.Name]) == 0 {
			wanted[nodeUser(n.Name, string(n.UID)).Name] = n
		}
	}
	for _, user := range users {
		if wanted[user] != nil || !strings.HasPrefix(user, nodePrefix) {
			if b.whole[user] {
				delete(wanted, user)
			}
			continue
		}
		if err := etcd.RemoveUser(ctx, user); err != nil {
			return err
		}
		b.log.Info("removed etcd's user of a node that is gone or revoked", "user", user)
	}
	for user, n := range wanted {
		delete(b.whole, user)
		if err := admit(ctx, etcd, n.Name, nodeUser(n.Name, string(n.UID))); err != nil {
			return err
		}
		b.whole[user] = true
	}
	return nil
}

// Revoke makes etcd refuse all requests of nodes with this name from now on; undo ends that.
func Revoke(ctx context.Context, cfg Config, node string, undo bool) error {
	b, err := open(cfg)
	if err != nil {
		return err
	}
	defer b.kube.Close()
	return b.administer(ctx, func(etcd *store.Client, _ *authority) error {
		n, err := kube.Get[corev1.Node](ctx, b.kube, "", node)
		if errors.Is(err, os.ErrNotExist) {
			n, err = new(corev1.Node), nil
		}
		if err != nil {
			return err
		}
		return revoke(ctx, etcd, node, string(n.UID), undo)
	})
}

// revoke is Revoke for the Node with this UID, "" if there is none.
func revoke(ctx context.Context, etcd *store.Client, node, uid string, undo bool) error {
	users, err := etcd.Users(ctx, "")
	if err != nil {
		return err
	}
	marker, markers, own := revokedPrefix+node+":"+uid, revoked(users)[node], nodePrefix+node+":"
	switch {
	case undo && len(markers) == 0:
		return fmt.Errorf("no node named %s is revoked", node)
	case undo && uid != "" && (slices.Contains(markers, marker) || slices.Contains(markers, revokedPrefix+node)):
		return fmt.Errorf("node %s is still the Node that was revoked, whose certificate would be good again: delete the Node first, and restart its kubelet, which registers it anew", node)
	case undo:
		return etcd.RemoveUser(ctx, markers...)
	case uid == "" && !slices.ContainsFunc(users, func(name string) bool { return strings.HasPrefix(name, own) }):
		return fmt.Errorf("no node and no etcd user named %s: see kubectl get nodes", node)
	}
	if err := etcd.AddUser(ctx, marker); err != nil {
		return err
	}
	certified, err := etcd.Users(ctx, own) // the signer may have created one before the marker existed
	if err == nil {
		err = etcd.RemoveUser(ctx, certified...)
	}
	if err == nil && slices.ContainsFunc(users, func(name string) bool { return slices.Contains(former(), name) }) {
		err = fmt.Errorf("node %s is revoked, but may have kept the certificates that all nodes shared in a former release: end these by calico-install revoke -shared", node)
	}
	return err
}

// former returns the users that all nodes shared before each had its own.
func former() []string { return []string{"node", "cni"} }

// Retire removes the users that all nodes shared.
func Retire(ctx context.Context, cfg Config) error {
	b, err := open(cfg)
	if err != nil {
		return err
	}
	defer b.kube.Close()
	return b.administer(ctx, func(etcd *store.Client, _ *authority) error {
		if err := etcd.RemoveUser(ctx, former()...); err != nil {
			return err
		}
		b.log.Info("the users of etcd that all nodes shared are removed", "users", strings.Join(former(), " "))
		return nil
	})
}
