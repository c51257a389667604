package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	gengo "google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// generateProtos writes the Go code of protobuf files, next to them. It needs only Go: neither protoc nor
// plugins on the path.
//
// Each argument is the path of a .proto file from the root of the repository. The output depends
// only on the file and on the versions in go.mod.
func generateProtos(ctx context.Context, paths []string, _ io.Writer) error {
	for _, path := range paths {
		if err := generateProtoGoCode(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// generateProtoGoCode writes the code of one file.
func generateProtoGoCode(ctx context.Context, path string) error {
	dir, name := filepath.Split(path)
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments are copied to the code
	}
	files, err := compiler.Compile(ctx, name)
	if err != nil {
		return fmt.Errorf("compile %s: %w", path, err)
	}
	source := "paths=source_relative"
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{name}, Parameter: &source}
	for _, f := range files {
		// protocompile has its own types for options; the generator needs those of the library.
		text, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: collectWithImports(f, map[string]bool{})})
		if err != nil {
			return fmt.Errorf("encode %s: %w", path, err)
		}
		var set descriptorpb.FileDescriptorSet
		if err := proto.Unmarshal(text, &set); err != nil {
			return fmt.Errorf("decode %s: %w", path, err)
		}
		request.ProtoFile = append(request.ProtoFile, set.GetFile()...)
	}
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, f := range plugin.Files {
		if f.Generate {
			gengo.GenerateFile(plugin, f)
		}
	}
	response := plugin.Response()
	if response.Error != nil {
		return fmt.Errorf("generate %s: %s", path, response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil { //nolint:gosec // code is for all to read
			return fmt.Errorf("write generated code of %s: %w", path, err)
		}
	}
	return nil
}

// collectWithImports returns a file after its imports.
func collectWithImports(f protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return nil
	}
	seen[f.Path()] = true
	var out []*descriptorpb.FileDescriptorProto
	for i := range f.Imports().Len() {
		out = append(out, collectWithImports(f.Imports().Get(i).FileDescriptor, seen)...)
	}
	return append(out, protodesc.ToFileDescriptorProto(f))
}
