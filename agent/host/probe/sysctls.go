package probe

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/storageclient/operator/agent/host/sockets"
)

// netSysctl and netValue match the sysctls that an order may set: each network namespace has a separate value of them.
var (
	netSysctl = regexp.MustCompile(`\Anet\.(core|ipv4)\.[a-z0-9_]+\z`)
	netValue  = regexp.MustCompile(`\A[0-9, -]*\z`)
)

// proveSysctls compares the sysctls of the network namespace with the values of an arm. With writes, it first sets sysctls that differ. Otherwise, it
// also compares the connections with them, if the kernel shows the effect. It returns no proof if the order has no sysctls.
func (w work) proveSysctls(arm Arm, writes bool) []Proof {
	if len(w.order.Sysctls) == 0 {
		return nil
	}
	all, failed := w.connections()
	// The connections of the last mount disappear soon after it, but not immediately.
	for i := 0; writes && len(all) > 0 && i < leftoverTries; i++ {
		w.pause(leftoverPause)
		all, failed = w.connections()
	}
	var values []string
	for _, s := range w.order.Sysctls {
		value := s.Before
		if arm == After {
			value = s.After
		}
		actual, err := w.sysctl(s.Name, value, writes)
		if err == nil && actual != value {
			err = fmt.Errorf("the kernel has %q", actual)
		}
		for _, socket := range all {
			if err == nil && !writes && contradicts(socket, s.Name, value) {
				err = fmt.Errorf("the connection to %s has another value", socket.Remote)
			}
		}
		if err = errors.Join(err, failed); err != nil {
			return []Proof{{Type: Sysctls, Message: fmt.Sprintf("sysctl %s must be %q in the network namespace of the runner: %v", s.Name, value, err)}}
		}
		values = append(values, s.Name+"="+value)
	}
	return []Proof{{Type: Sysctls, Holds: true, Message: strings.Join(values, ", ")}}
}

// sysctl returns a sysctl of this network namespace, after it has set it if writes is true and the value differs.
func (w work) sysctl(name, value string, writes bool) (string, error) {
	if !netSysctl.MatchString(name) || !netValue.MatchString(value) {
		return "", errors.New("not a sysctl of a network namespace, or an invalid value")
	}
	file := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
	data, err := w.readFile(file)
	if actual := strings.Join(strings.Fields(data), " "); err != nil || !writes || actual == value {
		return actual, err
	}
	if err := w.writeFile(file, value+"\n"); err != nil {
		return "", err
	}
	return w.sysctl(name, value, false)
}

// contradicts reports whether the value of a sysctl rules out a connection. The server may turn an option off, but not on. Source:
// net/ipv4/tcp_output.c, tcp_syn_options and tcp_select_initial_window.
func contradicts(s sockets.Socket, name, value string) bool {
	largest, _ := strconv.ParseUint(value[strings.LastIndex(value, " ")+1:], 10, 32)
	return value == "0" && (name == "net.ipv4.tcp_timestamps" && s.Timestamps || name == "net.ipv4.tcp_sack" && s.SACK ||
		name == "net.ipv4.tcp_window_scaling" && s.WindowScale >= 0) ||
		name == "net.ipv4.tcp_rmem" && s.WindowScale >= 0 && s.WindowScale < min(bits.Len64(largest)-16, 14)
}
