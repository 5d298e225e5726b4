// What can go wrong without a control plane being there: telling processes apart, and the texts that are written.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartTimeIsFoundBehindAnyCommand(t *testing.T) {
	rest := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21"
	for _, command := range []string{"(etcd)", "(a b)", "(a) R 1 (b)", "()"} {
		start, err := parseStat([]byte("17 " + command + rest))
		if err != nil || start != 4711 {
			t.Errorf("%s: %d, %v", command, start, err)
		}
	}
	for _, text := range []string{"", "17 (etcd", "17 (etcd) S 1 2", "17 (etcd)" + strings.Replace(rest, " S", " Z", 1)} {
		if start, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q has the start time %d", text, start)
		}
	}
}

func TestOnlyTheRecordedProcessIsEnded(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	right, err := describe("sleep", cmd.Process.Pid, roleComponent)
	if err != nil {
		t.Fatal(err)
	}
	later, otherBoot := right, right
	later.Start++
	otherBoot.Boot = "another"
	if ended := endAll([]process{later, otherBoot}); len(ended) > 0 || !right.alive() {
		t.Fatalf("ended a process that was not recorded: %v", ended)
	}
	if ended := endAll([]process{right}); len(ended) != 1 || right.alive() {
		t.Fatalf("did not end the recorded process: %v", ended)
	}
	<-gone
}

func TestNothingIsRemovedFromAFolderOfOthers(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "config")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := down(dir, true); err == nil {
		t.Error("down --remove took a folder of others")
	}
	if _, err := lock(dir); err == nil {
		t.Error("up would have removed 'config'")
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestRecordKeepsThoseThatLive(t *testing.T) {
	dir := t.TempDir()
	gone := process{Name: "operator", PID: 1 << 30, Role: roleRecorded}
	if err := (&state{Server: "s", Processes: []process{gone}}).write(dir); err != nil {
		t.Fatal(err)
	}
	// which makes the folder one of ours
	if err := os.WriteFile(filepath.Join(dir, lockName), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := record(dir, "operator", os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	s, err := readState(dir)
	if err != nil || s.Server != "s" || len(s.Processes) != 1 || !s.Processes[0].alive() {
		t.Errorf("%+v, %v", s, err)
	}
	if err := record(dir, "operator", 1<<30); err == nil {
		t.Error("recorded a process that does not exist")
	}
}

func TestTexts(t *testing.T) {
	text, err := stages()
	if err != nil || strings.Contains(string(text), "[[") || strings.Count(string(text), "kind: Stage\n") != 10 {
		t.Errorf("stages: %v\n%s", err, text)
	}
	if policy := string(auditPolicy([]string{"a", `b"`})); !strings.Contains(policy, `users: ["a", "b\""]`) {
		t.Error(policy)
	}
	if line := brief("[+]ping ok\n[-]etcd failed\nreadyz check failed\n"); line != "[-]etcd failed; readyz check failed" {
		t.Error(line)
	}
	p, err := choosePorts(0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{p.etcd: true, p.peer: true, p.apiserver: true, p.controllers: true, p.scheduler: true}
	if len(seen) != 5 || seen[0] {
		t.Errorf("%+v", p)
	}
}
