package cluster

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs the certificates of one run.
type authority struct {
	dirs Dirs
	cert *x509.Certificate
	key  crypto.Signer
}

// identity is a certificate to create: NAME.crt and NAME.key in the run's keys.
type identity struct {
	name, commonName, organization string
	dnsNames                       []string
	addresses                      []string
}

// makeKeys writes the certificates, the key of service account tokens, the kubeconfigs and the SSH key of this run.
func (c *Cluster) makeKeys(ctx context.Context) error {
	ca, err := newAuthority(c.dirs)
	if err != nil {
		return err
	}
	identities := []identity{
		{name: "apiserver", commonName: "kube-apiserver", addresses: []string{"127.0.0.1", hostAddress, "10.96.0.1"}, dnsNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
		{name: "admin", commonName: "admin", organization: "system:masters"},
		{name: "kubelet-client", commonName: "apiserver-kubelet-client", organization: "system:masters"},
		{name: "front-proxy", commonName: "front-proxy"},
		{name: "controller-manager", commonName: "system:kube-controller-manager"},
		{name: "scheduler", commonName: "system:kube-scheduler"},
	}
	for _, m := range c.Members() {
		identities = append(identities, identity{name: m.Name, commonName: "system:node:" + m.Name, organization: "system:nodes",
			dnsNames: []string{m.Name}, addresses: []string{m.Address}})
	}
	for _, id := range identities {
		if err := ca.issue(id); err != nil {
			return fmt.Errorf("make certificate %s: %w", id.name, err)
		}
		if err := ca.kubeconfig(id.name, c.dirs.key(id.name+".conf")); err != nil {
			return fmt.Errorf("make kubeconfig %s: %w", id.name, err)
		}
	}
	if err := ca.kubeconfig("admin", c.dirs.Kubeconfig()); err != nil {
		return err
	}
	if _, err := newKey(c.dirs.key("service-accounts.key")); err != nil {
		return err
	}
	return command(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", c.dirs.key("ssh"))
}

func newAuthority(dirs Dirs) (*authority, error) {
	key, err := newKey(dirs.key("ca.key"))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	ca := &authority{dirs: dirs, cert: template, key: key}
	ca.cert, err = ca.sign(template, key.Public(), "ca")
	return ca, err
}

func (a *authority) issue(id identity) error {
	key, err := newKey(a.dirs.key(id.name + ".key"))
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: id.commonName}, DNSNames: id.dnsNames,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	if id.organization != "" {
		template.Subject.Organization = []string{id.organization}
	}
	for _, address := range id.addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	_, err = a.sign(template, key.Public(), id.name)
	return err
}

// sign writes NAME.crt. It is valid for a week, and from an hour ago because a machine's clock may be slow.
func (a *authority) sign(template *x509.Certificate, public crypto.PublicKey, name string) (*x509.Certificate, error) {
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(7*24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	if err := writePEM(a.dirs.key(name+".crt"), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func (a *authority) kubeconfig(name, path string) error {
	config := clientcmdapi.NewConfig()
	ca, err := os.ReadFile(a.dirs.key("ca.crt"))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(a.dirs.key(name + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.dirs.key(name + ".key"))
	if err != nil {
		return err
	}
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: apiServer, CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: name}
	config.CurrentContext = "e2e"
	return clientcmd.WriteToFile(*config, path)
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
