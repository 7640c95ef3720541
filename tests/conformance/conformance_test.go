// Package conformance runs the conformance suite of the Gateway API against the edge of the cluster that the kubeconfig
// names. Flags are the suite's own.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
