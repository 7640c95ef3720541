package conformance

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	pb "sigs.k8s.io/gateway-api-conformance-images/echo-basic/grpcechoserver"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/utils/grpc"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/conformance/utils/tcp"
	"sigs.k8s.io/gateway-api/conformance/utils/tls"
	"sigs.k8s.io/gateway-api/conformance/utils/udp"
)

const infra = suite.InfrastructureNamespace

// bench is what the cases of TestPods share.
type bench struct {
	suite.ConformanceOptions
	trip roundtripper.RoundTripper
	// A certificate that the pods with TLS show.
	certificate []byte
}

// TestPods applies the suite's base manifests and asks their pods with the suite's clients, with nothing between. Where it
// fails, no result of the suite about an edge means anything.
func TestPods(t *testing.T) {
	options := conformance.DefaultOptions(t)
	b := bench{ConformanceOptions: options}
	b.trip = &roundtripper.DefaultRoundTripper{TimeoutConfig: options.TimeoutConfig}
	b.apply(t)
	kubernetes.MeshNamespacesMustBeReady(t, b.Client, b.TimeoutConfig,
		[]string{infra, suite.AppBackendNamespace, suite.WebBackendNamespace})

	t.Run("http", func(t *testing.T) { b.answers(t, "infra-backend-v1", "3000", "") })
	t.Run("h2c", func(t *testing.T) { b.answers(t, "infra-backend-v1", "3001", roundtripper.H2CPriorKnowledgeProtocol) })
	t.Run("websocket", b.websocket)
	t.Run("https", func(t *testing.T) {
		address := b.address(t, "tls-backend", "8443")
		tls.MakeTLSRequestAndExpectEventuallyConsistentResponse(t, b.trip, b.TimeoutConfig, address, b.certificate, nil, nil,
			"abc.example.com", expected("tls-backend", "abc.example.com"))
	})
	t.Run("grpc", func(t *testing.T) {
		address := b.address(t, "grpc-infra-backend-v2", "3000")
		grpc.MakeRequestAndExpectEventuallyConsistentResponse(t, nil, b.TimeoutConfig, address,
			grpc.ExpectedResponse{EchoRequest: &pb.EchoRequest{}, Backend: "grpc-infra-backend-v2", Namespace: infra})
	})
	t.Run("tcp", func(t *testing.T) {
		plain := tcp.ExpectedResponse{Backend: "tcp-backend", Namespace: infra}
		tcp.MakeTCPRequestAndExpectEventuallyValidResponse(t, b.TimeoutConfig, b.address(t, "tcp-backend", "3000"), nil, "",
			false, plain)
		secured := tcp.ExpectedResponse{BackendIsTLS: true, Backend: "tcp-backend", Namespace: infra, Hostname: "abc.example.com"}
		tcp.MakeTCPRequestAndExpectEventuallyValidResponse(t, b.TimeoutConfig, b.address(t, "tcp-backend", "8443"), b.certificate,
			"abc.example.com", true, secured)
	})
	t.Run("udp", func(t *testing.T) {
		udp.ExpectEchoResponseFromBackend(t, b.TimeoutConfig, b.address(t, "udp", "8080"),
			udp.ExpectedResponse{Service: "udp-echo", Namespace: infra})
	})
	t.Run("a port without a server refuses", func(t *testing.T) {
		_, err := net.DialTimeout("tcp", b.address(t, "udp", "3000"), time.Second)
		require.ErrorContains(t, err, "refused")
	})
	t.Run("logs", func(t *testing.T) {
		b.answers(t, "infra-backend-v2", "3000", "")
		logged := []http.MirroredBackend{{BackendRef: http.BackendRef{Name: "infra-backend-v2", Namespace: infra}}}
		http.ExpectMirroredRequest(t, b.Client, b.Clientset, logged, "/infra-backend-v2", b.TimeoutConfig)()
	})
}

// apply makes the base resources without their Gateways, and those Secrets that pods mount.
func (b *bench) apply(t *testing.T) {
	applier := kubernetes.Applier{
		ManifestFS: b.ManifestFS, GatewayClass: b.GatewayClassName, ControllerName: "tidegate.io/gateway",
	}
	applier.MustApplyWithCleanup(t, b.Client, b.TimeoutConfig, "base/manifests.yaml", true)
	require.NoError(t, b.Client.DeleteAllOf(t.Context(), &gateway.Gateway{}, client.InNamespace(infra)))
	_, authority, key := kubernetes.MustCreateCACertConfigMap(t, infra, "unused")
	for _, at := range []types.NamespacedName{
		{Namespace: infra, Name: "tls-checks-certificate"},
		{Namespace: infra, Name: "tls-passthrough-checks-certificate"},
		{Namespace: suite.AppBackendNamespace, Name: "tls-passthrough-checks-certificate"},
	} {
		secret := kubernetes.MustCreateCASignedCertSecret(t, at.Namespace, at.Name, []string{"abc.example.com"}, authority, key)
		applier.MustApplyObjectsWithCleanup(t, b.Client, b.TimeoutConfig, []client.Object{secret}, true)
	}
	served, _, err := kubernetes.GetTLSSecret(b.Client, types.NamespacedName{Namespace: infra, Name: "tls-checks-certificate"})
	require.NoError(t, err)
	passed, _, err := kubernetes.GetTLSSecret(b.Client, types.NamespacedName{Namespace: infra, Name: "tls-passthrough-checks-certificate"})
	require.NoError(t, err)
	b.certificate = append(served, passed...)
}

// address is that of a port of some pod with this label `app`, which is the name of its Deployment for all but udp-echo.
func (b *bench) address(t *testing.T, app, port string) string {
	pods := &v1.PodList{}
	require.NoError(t, b.Client.List(t.Context(), pods, client.InNamespace(infra), client.MatchingLabels{"app": app}))
	require.NotEmpty(t, pods.Items)
	return net.JoinHostPort(pods.Items[0].Status.PodIPs[0].IP, port)
}

// answers asks for a path that names the Deployment.
func (b *bench) answers(t *testing.T, deployment, port, protocol string) {
	response := expected(deployment, "")
	response.Request.Protocol = protocol
	http.MakeRequestAndExpectEventuallyConsistentResponse(t, b.trip, b.TimeoutConfig, b.address(t, deployment, port), response)
}

func expected(deployment, host string) http.ExpectedResponse {
	request := http.Request{Host: host, Path: "/" + deployment}
	return http.ExpectedResponse{Request: request, Backend: deployment, Namespace: infra}
}

func (b *bench) websocket(t *testing.T) {
	url := "ws://" + b.address(t, "infra-backend-v1", "3000") + "/ws"
	connection, err := websocket.Dial(url, "", "http://localhost")
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	require.NoError(t, websocket.Message.Send(connection, "ping"))
	var echoed string
	require.NoError(t, websocket.Message.Receive(connection, &echoed))
	require.Equal(t, "ping", echoed)
}
