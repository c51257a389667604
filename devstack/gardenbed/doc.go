// Package gardenbed starts a garden for tests: the real API server of Gardener
// behind a control plane of kubebed, with a project, cloud profiles, credentials
// and registered extensions. So Shoots are accepted, defaulted and rejected as in
// a production garden. Tests use it through kubebedtest.
//
// No clusters are created for the Shoots. A Gardenlet can simulate that.
//
// The offers of the providers are the same everywhere (see objects/offers.yaml):
//
//	profile, type    region, zones                  machine types                 volumes  image
//	local            local                          local                         -        local
//	metal            fra-equ01, muc-equ01           n1-medium-x86, c1-xlarge-x86  -        ubuntu
//	aws              eu-central-1, eu-west-1 (a-c)  m5.large, m5.xlarge           gp3, io1 gardenlinux
//
// The versions of Kubernetes are 1.33.5, 1.34.1, 1.34.2, 1.34.3 and 1.35.0. A
// project has a CredentialsBinding for each profile, of the same name. Its
// namespace is "garden-" followed by its name.
package gardenbed
