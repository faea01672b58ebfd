// SPDX-License-Identifier: Apache-2.0

// Command manifests makes the files that are given to kubectl apply, and the templates of the Helm chart, from the kustomize sources beside
// them. `make manifests` runs it; with -check it fails where a file is not what the sources say. With -images the files name images as they were made
// there, by registry and digest: what a node runs is then what was built, whatever a tag says later.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// files are what is made, and the overlay that each is made from.
var files = []struct{ file, overlay, head string }{
	{"calico.yaml", "overlays/calico", `# Calico with an etcd of its own, which runs on the control plane with certificates that it makes and renews by itself:
#   kubectl apply -f calico.yaml`},
	{"calico-etcd.yaml", "overlays/calico-etcd", `# Calico with an etcd that exists. Before kubectl apply, write where it is into the ConfigMap calico-config, and the
# certificates for it into the Secret calico-etcd-secrets.`},
	{"calico-nsm.yaml", "nsm", `# Network service connections, beside calico.yaml or calico-etcd.yaml, or another network of pods:
#   kubectl apply -f calico-nsm.yaml`},
	{"calico-uninstall.yaml", "overlays/calico-uninstall", `# Takes Calico away from every node, once calico-node is deleted: first the network configuration and policy, and the rest as
# soon as a node has no pod left. docs/kubernetes.md has the order of things.`},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "manifests: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("manifests", flag.ContinueOnError)
	dir := fs.String("dir", "../k8s-manifests", "where the sources are, and the files go")
	release := fs.String("release", "", "tag that the images must have")
	check := fs.Bool("check", false, "write nothing: fail where a file is not what the sources say")
	images := fs.String("images", "", "folder that make images wrote to: name these images, by digest; with -out")
	out := fs.String("out", "", "where the files go instead")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *release == "" {
		return errors.New("-release is required: run make manifests")
	}
	var names []string
	var err error
	switch {
	case (*images == "") != (*out == ""):
		return errors.New("-images and -out go together: files that name digests are made for one build, and not kept here")
	case *out != "":
		if names, err = pinned(*images, *release); err == nil {
			err = os.MkdirAll(*out, 0o755)
		}
	default:
		*out = *dir
	}
	if err != nil {
		return err
	}
	made := map[string][]byte{}
	if *images == "" { // what a chart's images are called its values say
		if made, err = chart(*dir); err != nil {
			return err
		}
	}
	var errs []error
	for _, f := range files {
		text, err := render(filepath.Join(*dir, f.overlay), f.head)
		if err == nil {
			err = checkRelease(text, *release)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.file, err))
			continue
		}
		made[f.file] = []byte(strings.NewReplacer(names...).Replace(string(text)))
	}
	for file, want := range made {
		path := filepath.Join(*out, file)
		if !*check {
			errs = append(errs, os.WriteFile(path, want, 0o644))
			continue
		}
		have, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(have, want) {
			err = fmt.Errorf("%s is not what its sources say: run make manifests", path)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

const licence = "# SPDX-License-Identifier: Apache-2.0\n"

// head is what a file that is made begins with.
func head(source string) string {
	return licence + "# Made by make manifests from " + source + ": change that instead.\n#\n"
}

// render builds an overlay.
func render(overlay, comment string) ([]byte, error) {
	objects, err := build(overlay)
	if err != nil {
		return nil, err
	}
	out := bytes.NewBufferString(head(filepath.Base(filepath.Dir(overlay))+"/"+filepath.Base(overlay)) + comment + "\n")
	for _, o := range objects {
		text, err := objectText(o)
		if err != nil {
			return nil, err
		}
		out.WriteString(text)
	}
	return out.Bytes(), nil
}

// build has kustomize make an overlay's objects.
func build(overlay string) (objects []*yaml.RNode, err error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified // the overlay says it
	all, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, err
	}
	for _, o := range all.Resources() {
		objects = append(objects, &o.RNode)
	}
	return objects, nil
}

// objectText writes an object by itself: kustomize's own writer would drop the comments.
func objectText(o *yaml.RNode) (string, error) {
	text, err := o.String()
	return "---\n" + strings.TrimSuffix(strings.Replace(text, licence, "", 1), "\n") + "\n", err
}

// checkRelease finds images, and the Job, of another release.
func checkRelease(text []byte, release string) error {
	if job := "  name: calico-bootstrap-" + strings.ReplaceAll(release, ".", "-") + "\n"; bytes.Contains(text, []byte("kind: Job\n")) && !bytes.Contains(text, []byte(job)) {
		return fmt.Errorf("no Job with%s of release %s: name it so in k8s-manifests/base/bootstrap.yaml", strings.TrimRight(job, "\n"), release)
	}
	for line := range strings.Lines(string(text)) {
		image, ok := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- ")), "image: ")
		if ok && !strings.HasSuffix(image, ":"+release) {
			return fmt.Errorf("image %s is not of release %s: set newTag in k8s-manifests/base/kustomization.yaml", image, release)
		}
	}
	return nil
}

// pinned are the images that the sources name, each followed by what it is called by registry and digest.
func pinned(dir, release string) (names []string, err error) {
	for _, image := range []string{"calico", "etcd"} {
		index, err := layout.ImageIndexFromPath(filepath.Join(dir, "oci", image))
		if err != nil {
			return nil, fmt.Errorf("image %s: %w: run make images", image, err)
		}
		m, err := index.IndexManifest()
		if err == nil && len(m.Manifests) != 1 {
			err = fmt.Errorf("%d indexes in its layout, want 1", len(m.Manifests))
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w: run make images", image, err)
		}
		name, tagged := strings.CutSuffix(m.Manifests[0].Annotations["io.containerd.image.name"], ":"+release)
		if !tagged {
			return nil, fmt.Errorf("image %s is %q, not of release %s: run make images", image, name, release)
		}
		names = append(names, "image: calico/"+image+":"+release+"\n", "image: "+name+"@"+m.Manifests[0].Digest.String()+"\n")
	}
	return names, nil
}
