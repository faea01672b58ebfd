// SPDX-License-Identifier: Apache-2.0

// Command protos generates the Go code of api/nsm from its .proto files, without protoc.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	dir := flag.String("dir", "../api/nsm", "the directory of the .proto files, and of the code")
	flag.Parse()
	code, err := generate(context.Background(), *dir)
	for name, content := range code {
		if err == nil {
			err = os.WriteFile(filepath.Join(*dir, name), content, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "protos:", err)
		os.Exit(1)
	}
}

// generate returns the code for the .proto files of a directory, by file name.
func generate(ctx context.Context, dir string) (map[string][]byte, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.proto"))
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{Parameter: proto.String("paths=source_relative")}
	for _, p := range paths {
		request.FileToGenerate = append(request.FileToGenerate, filepath.Base(p))
	}
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{dir}}, SourceInfoMode: protocompile.SourceInfoStandard}
	files, err := compiler.Compile(ctx, request.FileToGenerate...)
	if err != nil {
		return nil, fmt.Errorf("compile %s: %w", dir, err)
	}
	for _, f := range files {
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(f))
	}
	// What is imported comes first.
	slices.SortStableFunc(request.ProtoFile, func(a, b *descriptorpb.FileDescriptorProto) int {
		return depth(a, request.ProtoFile) - depth(b, request.ProtoFile)
	})
	code := map[string][]byte{}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(ctx, plugin, request, code); err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return code, nil
}

// depth is how many imports are one below the other under a file.
func depth(f *descriptorpb.FileDescriptorProto, all []*descriptorpb.FileDescriptorProto) int {
	deepest := 0
	for _, other := range all {
		if slices.Contains(f.Dependency, other.GetName()) {
			deepest = max(deepest, 1+depth(other, all))
		}
	}
	return deepest
}

// run has a plugin generate, and adds what it made to code.
func run(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest, code map[string][]byte) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		code[f.GetName()] = []byte("// SPDX-License-Identifier: Apache-2.0\n\n" + f.GetContent())
	}
	return nil
}
