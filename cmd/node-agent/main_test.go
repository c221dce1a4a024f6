package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/storageclient/operator/agent/metrics"
	"github.com/storageclient/operator/cmd/internal/program"
	"github.com/storageclient/operator/test/check"
)

func TestFlags(t *testing.T) {
	t.Setenv("NODE_NAME", "from-env")
	tests := map[string]struct {
		args    []string
		want    options
		wantErr string
	}{
		"defaults": {want: options{
			nodeName: "from-env", hostRoot: "/host", kubeletDir: "/var/lib/kubelet", probeAddress: "127.0.0.1:9809", metricsAddress: "0",
		}},
		"all of them": {
			args: []string{
				"--node-name=n", "--host-root=/h", "--kubelet-dir=/k", "--kubeconfig=/c", "--health-probe-bind-address=:1",
				"--metrics-bind-address=127.0.0.1:9810", "--allow-parameter=a.*", "--allow-parameter=b", "--allow-filesystem=/scratch", "--v=2",
			},
			want: options{
				nodeName: "n", hostRoot: "/h", kubeletDir: "/k", kubeconfig: "/c", probeAddress: ":1",
				metricsAddress: "127.0.0.1:9810",
				allow:          program.Strings{"a.*", "b"}, allowFilesystems: program.Strings{"/scratch"}, verbosity: 2,
			},
		},
		"an argument too many": {args: []string{"x"}, wantErr: `unexpected argument "x"`},
		"metrics for anybody":  {args: []string{"--metrics-bind-address=:9810"}, wantErr: "--metrics-bind-address \":9810\": must be a loopback address"},
		"metrics for those who may read them": {
			args: []string{"--metrics-bind-address=[10.0.0.1]:9810", "--metrics-secure"},
			want: options{
				nodeName: "from-env", hostRoot: "/host", kubeletDir: "/var/lib/kubelet", probeAddress: "127.0.0.1:9809",
				metricsAddress: "[10.0.0.1]:9810", metricsSecure: true,
			},
		},
		"metrics on all addresses":    {args: []string{"--metrics-bind-address=:9810", "--metrics-secure"}, wantErr: "must be one of the node's addresses"},
		"secure metrics, and nowhere": {args: []string{"--metrics-secure"}, wantErr: "--metrics-secure requires --metrics-bind-address"},
		"no node's name":              {args: []string{"--node-name="}, wantErr: "--node-name or NODE_NAME is required"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.args, io.Discard)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("error is %v, want %q", err, test.wantErr)
				}
				return
			}
			check.NoError(t, err)
			check.Equal(t, "options", test.want, got, cmp.AllowUnexported(options{}))
		})
	}
}

func TestCommands(t *testing.T) {
	tests := map[string]struct {
		args    []string
		stdout  string
		wantErr string
	}{
		"version":        {args: []string{"version"}, stdout: version() + "\n"},
		"help":           {args: []string{"--help"}, stdout: usage},
		"help of run":    {args: []string{"run", "-h"}},
		"no command":     {wantErr: "unknown command"},
		"an unknown one": {args: []string{"reboot"}, wantErr: `unknown command "reboot"`},
		"no host":        {args: []string{"run", "--node-name=n", "--host-root=/nonexistent"}, wantErr: "open host root"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout bytes.Buffer
			err := command(test.args, strings.NewReader(""), &stdout, io.Discard)
			if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("error is %v, want %q", err, test.wantErr)
			}
			check.Equal(t, "output", test.stdout, stdout.String())
		})
	}
}

type fixed struct{ alive, ready bool }

func (f fixed) Alive() bool { return f.alive }

func (f fixed) Ready() bool { return f.ready }

func TestProbes(t *testing.T) {
	tests := map[string]struct {
		state           fixed
		healthz, readyz int
	}{
		"before the first status": {fixed{alive: true}, http.StatusOK, http.StatusServiceUnavailable},
		"in order":                {fixed{true, true}, http.StatusOK, http.StatusOK},
		"stalled":                 {fixed{ready: true}, http.StatusServiceUnavailable, http.StatusOK},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for path, want := range map[string]int{"/healthz": test.healthz, "/readyz": test.readyz} {
				recorder := httptest.NewRecorder()
				probeHandler(test.state).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
				if recorder.Code != want {
					t.Errorf("%s: got status %d, want %d", path, recorder.Code, want)
				}
			}
		})
	}
}

func TestRemoteMetricsRequireTLS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.NoError(t, err)
	address := listener.Addr().String()
	_ = listener.Close()
	config := metrics.TLSConfig("n1", address, clock.RealClock{})
	server, err := serve(t.Context(), address, "metrics", config, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "told") }))
	check.NoError(t, err)
	defer server.Close()
	cert, err := config.GetCertificate(nil)
	check.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert.Leaf)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	get := func(url string) string {
		response, err := client.Get(url)
		check.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		check.NoError(t, err)
		return response.Proto + " " + string(body)
	}
	check.Equal(t, "response over TLS", "HTTP/1.1 told", get("https://"+address))
	if got := get("http://" + address); strings.Contains(got, "told") {
		t.Errorf("without TLS: %q", got)
	}
}
