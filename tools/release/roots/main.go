// Command roots writes the certificate authorities that the images trust, as PEM: the list of
// Mozilla's programme, as the Go project publishes it in a module.
//
// It is a separate module, so that its go.mod defines the list of an image, independent of the
// build machine, and no binary links it.
package main

import (
	"bufio"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// module is the module with the list.
const module = "golang.org/x/crypto/x509roots/fallback"

func main() {
	if err := writeCertificateRoots(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "roots:", err)
		os.Exit(1)
	}
}

// writeCertificateRoots writes a line "# module version", which the SBOM repeats, and the certificates.
func writeCertificateRoots(w io.Writer) error {
	version, err := findModuleVersion()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "# %s %s\n", module, version)
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // partly trusted, which a file of certificates cannot express
		}
		if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	return out.Flush()
}

func findModuleVersion() (version string, err error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("read build information: none found")
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version, nil
		}
	}
	return "", fmt.Errorf("read build information: module %s not found", module)
}
