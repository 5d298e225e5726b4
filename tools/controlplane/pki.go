// Certificates and the files that carry them: one authority for a control plane, made anew for each.

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The group whose members may do everything, also before any RBAC rule exists.
const masters = "system:masters"

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func (p pair) write(dir, name string) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), p.cert, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), p.key, 0o600)
}

// authority signs the certificates of one control plane. Its key is never written: nothing is signed later.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	// Elliptic keys, because making RSA keys for seven certificates takes longer than starting etcd.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := blank("numaplane-control-plane", nil)
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}, nil
}

func blank(name string, groups []string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name, Organization: groups},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
}

// client makes the certificate of a user in the given groups.
func (a *authority) client(user string, groups ...string) (pair, error) {
	return a.sign(blank(user, groups))
}

// server makes the certificate that all components serve with.
func (a *authority) server() (pair, error) {
	template := blank("control-plane", nil)
	// etcd calls itself with the certificate it serves with, so it is a client's as well.
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	template.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(serviceIP)}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private)}, nil
}

// serviceAccountKeys makes the key that service account tokens are signed with, and the one they are verified with.
func serviceAccountKeys() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	privateDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	publicDER, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, err
	}
	return encode("EC PRIVATE KEY", privateDER), encode("PUBLIC KEY", publicDER), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// clientTLS makes what a client of this control plane needs to be sure whom it talks to and to say who it is.
func clientTLS(ca []byte, user pair) (*tls.Config, error) {
	cert, err := tls.X509KeyPair(user.cert, user.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate of an authority")
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}, nil
}

// kubeconfig makes the text of a kubeconfig for one user. Everything is inside, so that the file can be copied.
func kubeconfig(server, user string, ca []byte, p pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: %[2]s
clusters:
- name: numaplane-local
  cluster:
    server: %[1]s
    certificate-authority-data: %[3]s
users:
- name: %[2]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
contexts:
- name: %[2]s
  context:
    cluster: numaplane-local
    user: %[2]s
`, server, user, b64(ca), b64(p.cert), b64(p.key))
}
