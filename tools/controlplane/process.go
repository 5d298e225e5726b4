// The processes that run under a folder: how they are recorded, told apart from later ones, and ended.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// how long a process may take after SIGTERM before it gets SIGKILL
const patience = 5 * time.Second

// process is one recorded process. A process id alone says little, because ids are used again; together with the time
// the process started, in clock ticks since the boot named by Boot, it says which process was meant.
type process struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
	// Role is "component" for what up starts, "supervisor" for an up that stays in the foreground, "recorded" for what
	// came in through the record command.
	Role string `json:"role"`
}

const (
	roleComponent  = "component"
	roleSupervisor = "supervisor"
	roleRecorded   = "recorded"
)

// describe makes the record of a process that runs now.
func describe(name string, pid int, role string) (process, error) {
	start, err := startTime(pid)
	if err != nil {
		return process{}, fmt.Errorf("no process has the id %d", pid)
	}
	return process{Name: name, PID: pid, Start: start, Boot: boot(), Role: role}, nil
}

// alive says whether exactly the recorded process still runs.
func (p process) alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start && boot() == p.Boot
}

// signal sends a signal to exactly the recorded process, and says whether it was there.
func (p process) signal(signal syscall.Signal) bool {
	// FindProcess holds on to the process itself (a pidfd) where the kernel can, so that the check below and the signal
	// are about the same one even when the id is used again in between.
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return false
	}
	defer handle.Release()
	return p.alive() && handle.Signal(signal) == nil
}

// end ends processes together: SIGTERM to all of them, SIGKILL to those that are still there after the patience ran out.
// It returns the names of those it found alive.
func end(processes []process) []string {
	var ended []string
	for _, p := range processes {
		if p.signal(syscall.SIGTERM) {
			ended = append(ended, p.Name)
		}
	}
	if waitGone(processes, patience) {
		return ended
	}
	for _, p := range processes {
		p.signal(syscall.SIGKILL)
	}
	waitGone(processes, patience)
	return ended
}

func waitGone(processes []process, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if !slices.ContainsFunc(processes, process.alive) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// endAll ends everything recorded in an order in which nothing is left talking to something that is gone: first what was
// recorded from outside, then what talks to etcd, then etcd. It returns the names of what was still alive.
func endAll(processes []process) []string {
	var outside, clients, stores []process
	for _, p := range processes {
		switch {
		case p.Role == roleSupervisor:
		case p.Role == roleRecorded:
			outside = append(outside, p)
		case p.Name == "etcd":
			stores = append(stores, p)
		default:
			clients = append(clients, p)
		}
	}
	ended := end(outside)
	ended = append(ended, end(clients)...)
	return append(ended, end(stores)...)
}

// startTime reads when a process started, in clock ticks since boot. A zombie counts as gone.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(stat)
}

// parseStat finds the start time in the text of /proc/PID/stat. The second field is the command in parentheses, which
// may itself hold spaces and parentheses; all the others are plain, so counting starts after the last one.
func parseStat(stat []byte) (uint64, error) {
	closing := bytes.LastIndexByte(stat, ')')
	if closing < 0 {
		return 0, errors.New("no command in the process's stat")
	}
	fields := strings.Fields(string(stat[closing+1:]))
	const state, start = 0, 19 // fields 3 and 22 of proc_pid_stat(5)
	if len(fields) <= start {
		return 0, errors.New("the process's stat is cut short")
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(fields[start], 10, 64)
}

func boot() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// state is the content of DIR/pids.
type state struct {
	// Server is the address of kube-apiserver; empty before it is up.
	Server    string    `json:"server,omitempty"`
	Processes []process `json:"processes"`
}

func (s *state) only(role string) []process {
	var found []process
	for _, p := range s.Processes {
		if p.Role == role {
			found = append(found, p)
		}
	}
	return found
}

func readState(dir string) (*state, error) {
	text, err := os.ReadFile(filepath.Join(dir, "pids"))
	if errors.Is(err, fs.ErrNotExist) {
		return &state{}, nil
	}
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s cannot be read (%w); end by hand what it names, then remove it",
			filepath.Join(dir, "pids"), err)
	}
	return &s, nil
}

func (s *state) write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "pids"), append(text, '\n'), 0o644)
}

// writeFile replaces a file as a whole, so that a reader sees the old text or the new one and never a part.
func writeFile(path string, text []byte, mode os.FileMode) error {
	if err := os.WriteFile(path+".new", text, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lockName is the file whose lock keeps two commands on one folder apart. That it is there also marks a folder as ours:
// nothing is ever removed from any other.
const lockName = "control-plane.lock"

// useless names what is removed from a folder once nothing runs there.
var useless = []string{"kubeconfig", "kubeconfig-operator", "etcd", "pki", "config", "pids"}

// lock makes the folder when it is missing and keeps other commands off it until the returned function is called or this
// process ends, in whatever way.
func lock(dir string) (func(), error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		if !ours(dir) {
			for _, name := range useless {
				if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
					return nil, fmt.Errorf("%s holds '%s', which no control plane put there; give a folder of its own", dir, name)
				}
			}
		}
		path := filepath.Join(dir, lockName)
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder was removed since
		}
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			fmt.Fprintln(os.Stderr, "control plane: waiting for another control-plane command on", dir)
			err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		// While this one waited, another may have removed the folder with the file in it; then the lock is worth nothing.
		held, err1 := file.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return func() { file.Close() }, nil
		}
		file.Close()
	}
}

func ours(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, lockName))
	return err == nil
}

// down ends everything recorded under the folder and removes what is of no use without it.
func down(dir string, remove bool) error {
	if !ours(dir) {
		if remove {
			// An empty folder may go; one with anything in it is someone else's.
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s was not made by control-plane up and is not empty, so it stays", dir)
			}
		}
		fmt.Println("control plane: nothing runs under", dir)
		return nil
	}
	// One that stays in the foreground holds its processes as children and tears them down itself. It needs the lock for
	// that, so it is asked before the lock is taken.
	before, err := readState(dir)
	if err != nil {
		return err
	}
	asked := false
	for _, p := range before.only(roleSupervisor) {
		asked = p.signal(syscall.SIGTERM) || asked
	}
	if asked {
		waitGone(before.only(roleSupervisor), 4*patience)
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(dir)
	if err != nil {
		return err
	}
	ended := endAll(s.Processes)
	if err := tidy(dir, remove); err != nil {
		return err
	}
	switch {
	case len(ended) > 0:
		fmt.Println("control plane: ended", strings.Join(ended, ", "))
	case asked:
		fmt.Println("control plane: ended the one in the foreground")
	default:
		fmt.Println("control plane: nothing runs under", dir)
	}
	return nil
}

// tidy removes what is of no use once nothing runs. What tells what happened stays, unless everything is to go.
func tidy(dir string, everything bool) error {
	if everything {
		return os.RemoveAll(dir)
	}
	for _, name := range useless {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// record adds a process to those that down ends.
func record(dir, name string, pid int) error {
	added, err := describe(name, pid, roleRecorded)
	if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(dir)
	if err != nil {
		return err
	}
	// Those of this role that are gone have nothing left to be ended; without this the list would grow with each record.
	s.Processes = slices.DeleteFunc(s.Processes, func(p process) bool {
		return p == added || p.Role == roleRecorded && !p.alive()
	})
	s.Processes = append(s.Processes, added)
	return s.write(dir)
}
