package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/storageclient/operator/api/v1alpha1"
)

func kernelNode(name, release, build string, mounts ...v1alpha1.MountStatus) client.Object {
	return &v1alpha1.StorageClientNode{ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: v1alpha1.StorageClientNodeStatus{KernelVersion: release, KernelBuild: build, Mounts: mounts}}
}

func TestPlanOfAKernel(t *testing.T) {
	readOnly := v1alpha1.MountStatus{MountPoint: "/a", Protocol: "NFSv3", Options: []string{"ro"}}
	v41 := v1alpha1.MountStatus{MountPoint: "/b", Protocol: "NFSv4.1", Options: []string{"rw"}}
	objects := []client.Object{
		kernelNode("n1", "6.1.0-44-amd64", "Linux version 6.1.0-44-amd64 (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP Debian 6.1.150-1", readOnly, v41),
		kernelNode("n2", "6.1.170", "", v41),
		kernelNode("n3", "5.14.0-427.el9.x86_64", "", readOnly),
	}
	for release, want := range map[string][]string{
		"7.3.4": {"Kernel 7.3.4 on all nodes, with their present mounts. The command changes no node.", "Brings nfs-dirdeleg-ganesha: listings fail", "Nodes: n1, n2\n",
			`{spec: {node: {kernelModules: [{name: nfsv4, parameters: {directory_delegations: "0"}}]}}}`, "The present kernel does not show its fixes on 1 node: n3"},
		"6.1.170": {"Removes nfs-ro-ignored: pods write to read-only volumes", "Nodes: n1\n"},
	} {
		r := execute(t, interceptor.Funcs{}, objects, "plan", "--kernel", release)
		for _, part := range want {
			if r.err != nil || !strings.Contains(r.out, part) {
				t.Errorf("%s: error %v, got no %q in:\n%s", release, r.err, part, r.out)
			}
		}
	}
	if r := execute(t, interceptor.Funcs{}, objects, "plan", "--kernel", "6.1.170"); strings.Contains(r.out, "Brings nfs-ro-ignored") {
		t.Errorf("got a problem that the kernel does not have:\n%s", r.out)
	}
	if r := execute(t, interceptor.Funcs{}, objects, "plan", "--kernel", "7.3.4", "-o", "json"); !strings.Contains(r.out, `"id": "nfs-dirdeleg-ganesha"`) {
		t.Errorf("error %v, got JSON:\n%s", r.err, r.out)
	}
	for arguments, want := range map[string]string{
		"--kernel 5.14.0-427.el9.x86_64": "the release does not show the fixes of this kernel; set the stable release that it contains",
		"--kernel 7.3.4 eda":             "--kernel cannot be combined with a profile or files",
		"--kernel 7.3.4 -f x.yaml":       "--kernel cannot be combined with a profile or files",
		"--kernel 7.3.4 --exit-code":     "required",
	} {
		if r := execute(t, interceptor.Funcs{}, objects, append([]string{"plan"}, strings.Fields(arguments)...)...); r.err == nil || !strings.Contains(r.err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", arguments, r.err, want)
		}
	}
}
