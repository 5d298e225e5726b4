// The programs a control plane is made of: with which flags each runs, and how to see that it works.

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
)

// operatorUser is the user whose requests are always in the audit log.
const operatorUser = "numaplane-operator"

const (
	services  = "10.96.0.0/16"
	serviceIP = "10.96.0.1" // kube-apiserver gives its own Service the first address
)

//go:embed stages.yaml.tmpl
var stagesTemplate string

// stages makes the text of kwok's stages.
func stages() ([]byte, error) {
	var text bytes.Buffer
	// Other delimiters than usual, because kwok has templates in there as well.
	all, err := template.New("stages.yaml.tmpl").Delims("[[", "]]").Parse(stagesTemplate)
	if err == nil {
		err = all.Execute(&text, nil)
	}
	return text.Bytes(), err
}

// programs are the binaries that have to be there, in the order in which they are started.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// ports are those that are listened on, all of them on 127.0.0.1.
type ports struct{ etcd, peer, apiserver, controllers, scheduler int }

func url(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

// arguments are the flags of every program. Everything of this control plane is thrown away with it, so that nothing is
// tuned for durability; and it serves one client that is measured, so that the limits of the others are out of its way.
func arguments(dir string, p ports) map[string][]string {
	pki := func(name string) string { return filepath.Join(dir, "pki", name) }
	config := func(name string) string { return filepath.Join(dir, "config", name) }
	peer := fmt.Sprintf("http://127.0.0.1:%d", p.peer)
	serving := []string{
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + pki("server.crt"),
		"--tls-private-key-file=" + pki("server.key"),
		"--profiling=false",
	}
	// Twenty replicas of everything at once is what an upgrade of many namespaces looks like.
	client := []string{"--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect=false"}

	return map[string][]string{
		// With certificates, so that another user of the machine cannot read the store, and so that a port that was taken
		// by another etcd since it was chosen is not mistaken for ours.
		"etcd": {
			"--name=default",
			"--data-dir=" + filepath.Join(dir, "etcd"),
			"--listen-client-urls=" + url(p.etcd),
			"--advertise-client-urls=" + url(p.etcd),
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=default=" + peer,
			"--cert-file=" + pki("server.crt"),
			"--key-file=" + pki("server.key"),
			"--client-cert-auth",
			"--trusted-ca-file=" + pki("ca.crt"),
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
		"kube-apiserver": append([]string{
			fmt.Sprintf("--secure-port=%d", p.apiserver),
			// Nobody reaches this server through the Service "kubernetes", and its endpoints may not be on the loopback
			// interface, so they are not kept.
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none",
			"--etcd-servers=" + url(p.etcd),
			"--etcd-cafile=" + pki("ca.crt"),
			"--etcd-certfile=" + pki("etcd-client.crt"),
			"--etcd-keyfile=" + pki("etcd-client.key"),
			"--client-ca-file=" + pki("ca.crt"),
			"--authorization-mode=Node,RBAC",
			"--service-cluster-ip-range=" + services,
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("sa.pub"),
			"--service-account-signing-key-file=" + pki("sa.key"),
			// Webhooks that are named by Service are called at their endpoints; there is no kube-proxy.
			"--enable-aggregator-routing=true",
			"--max-requests-inflight=2000",
			"--max-mutating-requests-inflight=1000",
			// Blocking, and in one file whatever its size: who counts requests must find each of them, once.
			"--audit-policy-file=" + config("audit-policy.yaml"),
			"--audit-log-path=" + filepath.Join(dir, "audit.log"),
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=100000",
		}, serving...),
		"kube-controller-manager": append(append([]string{
			fmt.Sprintf("--secure-port=%d", p.controllers),
			"--kubeconfig=" + config("kube-controller-manager.kubeconfig"),
			"--root-ca-file=" + pki("ca.crt"),
			"--service-account-private-key-file=" + pki("sa.key"),
			"--use-service-account-credentials=false",
			"--concurrent-deployment-syncs=20",
			"--concurrent-replicaset-syncs=20",
			// Five times the interval in which kwok renews a node's lease; see stages.yaml.tmpl.
			"--node-monitor-grace-period=300s",
		}, client...), serving...),
		"kube-scheduler": append(append([]string{
			fmt.Sprintf("--secure-port=%d", p.scheduler),
			"--kubeconfig=" + config("kube-scheduler.kubeconfig"),
		}, client...), serving...),
		"kwok": {
			"--kubeconfig=" + config("kwok.kubeconfig"),
			"--config=" + config("stages.yaml"),
		},
	}
}

// auditPolicy asks for one line a request of the given users, and one more when a watch starts.
func auditPolicy(users []string) []byte {
	quoted := make([]string, len(users))
	for i, user := range users {
		quoted[i] = fmt.Sprintf("%q", user)
	}
	return fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [%s]
- level: None
`, strings.Join(quoted, ", "))
}

const maxNodes = 100

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// node is what a kubelet would register. kwok takes it from there, because of the annotation.
func node(i int) map[string]any {
	name := nodeName(i)
	room := map[string]string{"cpu": "1000", "memory": "1Ti", "pods": "10000"}
	cidr := fmt.Sprintf("10.%d.0.0/16", 100+i)
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": map[string]any{
			"name":        name,
			"annotations": map[string]string{"kwok.x-k8s.io/node": "fake"},
			"labels": map[string]string{
				"type":                   "kwok",
				"kubernetes.io/hostname": name,
				"kubernetes.io/os":       "linux",
				"kubernetes.io/arch":     "amd64",
			},
		},
		"spec": map[string]any{"podCIDR": cidr, "podCIDRs": []string{cidr}},
		"status": map[string]any{
			"allocatable": room,
			"capacity":    room,
			// 192.0.2.0/24 is set aside for examples: nothing is there.
			"addresses": []map[string]string{
				{"type": "InternalIP", "address": fmt.Sprintf("192.0.2.%d", 1+i)},
				{"type": "Hostname", "address": name},
			},
		},
	}
}
