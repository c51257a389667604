// Package gardenbed starts a garden of its own: the real API server of Gardener
// behind a control plane of kubebed, with a project, cloud profiles, credentials
// and registered extensions, so that Shoots are accepted, defaulted and refused
// as in a garden of the world outside. Tests use it, by way of gardenbedtest.
//
// Nobody makes clusters of the Shoots. Package gardenlet can say that it does.
//
// What providers offer is the same everywhere (see objects/offers.yaml):
//
//	profile, type    region, zones                  machine types                 volumes  image
//	local            local                          local                         -        local
//	metal            fra-equ01, muc-equ01           n1-medium-x86, c1-xlarge-x86  -        ubuntu
//	aws              eu-central-1, eu-west-1 (a-c)  m5.large, m5.xlarge           gp3, io1 gardenlinux
//
// Kubernetes is there as 1.33.5, 1.34.1, 1.34.2, 1.34.3 and 1.35.0. A project
// has a CredentialsBinding for each profile, of the same name, and is in the
// namespace "garden-" and its name.
package gardenbed
