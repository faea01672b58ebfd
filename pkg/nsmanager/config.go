// SPDX-License-Identifier: Apache-2.0

package nsmanager

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"net/netip"

	"github.com/calico-go/calico/pkg/daemon/run"
	"github.com/calico-go/calico/pkg/nsm"
	"github.com/calico-go/calico/pkg/nsmgrpc"
)

// ParseConfig is run.Parse: it reads the command line and, of etcd and the log, the environment. hostname is the operating system's;
// help and the log go to out.
func ParseConfig(args, environ []string, hostname string, out io.Writer) (cfg Config, err error) {
	var level slog.Level
	flags := flag.NewFlagSet("calico-nsm", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&cfg.Node, "node", hostname, "the `name` of this node, unlike all others")
	flags.TextVar(&cfg.Address, "address", netip.Addr{}, "this node's `IP` for other nodes: managers call it, and tunnels end there")
	port := flags.Uint("port", 5005, "the TCP `port` of managers")
	vxlan := flags.Uint("vxlan-port", 4795, "the UDP `port` of tunnels, the same on all nodes")
	flags.StringVar(&cfg.Directory, "directory", nsmgrpc.DefaultDirectory, "where the sockets and the state are")
	flags.StringVar(&cfg.TLS.CAFile, "ca-file", "", "PEM `file` of the managers' authority")
	flags.StringVar(&cfg.TLS.CertFile, "cert-file", "", "PEM `file` of this manager's certificate, with the DNS name calico-nsm")
	flags.StringVar(&cfg.TLS.KeyFile, "key-file", "", "PEM `file` of its key")
	if err := run.Parse(flags, append(run.Etcd(&cfg.Store), run.Level(&level)), args, environ); err != nil {
		return cfg, err
	}
	cfg.Store.SetDefaults()
	cfg.Logger = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
	cfg.Store.Logger = cfg.Logger
	cfg.Port, cfg.VXLANPort = uint16(*port), uint16(*vxlan)
	switch {
	case !cfg.Address.IsValid() || cfg.Address.Is4In6() || cfg.Address.IsUnspecified() || cfg.Address.Zone() != "":
		err = errors.New("-address is required: this node's IP address for other nodes")
	case *port == 0 || *port > 65535 || *vxlan == 0 || *vxlan > 65535:
		err = errors.New("-port and -vxlan-port must be 1 to 65535")
	case cfg.TLS.CAFile == "" || cfg.TLS.CertFile == "" || cfg.TLS.KeyFile == "":
		err = errors.New("-ca-file, -cert-file and -key-file are required: managers know one another by certificates")
	default:
		err = nsm.CheckName("-node", cfg.Node)
	}
	return cfg, err
}
