class Fleetloop < Formula
  desc "Operate fleets of Kubernetes clusters"
  homepage "https://github.com/fleetloop/fleetloop"
  version "{{.Version}}"
  license "Apache-2.0"
{{range .Archives}}
  {{if eq .OS "darwin"}}on_macos{{else}}on_linux{{end}} do
    {{if eq .Architecture "arm64"}}on_arm{{else}}on_intel{{end}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
  end
{{end}}
  def install
    bin.install "fleetloop", "fleetloop-up"
    generate_completions_from_executable(bin/"fleetloop", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/fleetloop --version")
  end
end
