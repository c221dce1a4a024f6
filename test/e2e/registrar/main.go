// Command registrar registers a CSI driver with a kubelet, as a sidecar does in a cluster. It responds to the two calls of the kubelet's
// plugin registration (pkg/apis/pluginregistration/v1 of k8s.io/kubelet) on a socket that the kubelet watches.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: registrar SOCKET DRIVER ENDPOINT")
		os.Exit(1)
	}
	if err := serve(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket, driver, endpoint string) error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return err
	}
	// PluginInfo: type, name, endpoint, supported_versions.
	info := field(nil, 1, "CSIPlugin")
	info = field(info, 2, driver)
	info = field(info, 3, endpoint)
	info = field(info, 4, "1.0.0")
	mux := http.NewServeMux()
	mux.HandleFunc("/pluginregistration.Registration/GetInfo", func(w http.ResponseWriter, _ *http.Request) { respond(w, info) })
	mux.HandleFunc("/pluginregistration.Registration/NotifyRegistrationStatus", func(w http.ResponseWriter, _ *http.Request) { respond(w, nil) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
	server.Protocols.SetUnencryptedHTTP2(true)
	return server.Serve(listener)
}

// field appends a string field of less than 128 bytes to a protobuf message.
func field(message []byte, number byte, value string) []byte {
	return append(append(message, number<<3|2, byte(len(value))), value...)
}

// respond writes a message in the form of gRPC: a length before it, the status in a trailer.
func respond(w http.ResponseWriter, message []byte) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	header := make([]byte, 5)
	binary.BigEndian.PutUint32(header[1:], uint32(len(message)))
	_, _ = w.Write(append(header, message...))
	w.Header().Set("Grpc-Status", "0")
}
