// The command line of control-plane: what it is called with, what it says, and what it ends with.
//
// control-plane runs a real Kubernetes control plane on one machine, as an ordinary user and without containers: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, and kwok for a node that simulates its pods.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const usage = `control-plane runs a Kubernetes control plane with a simulated node on 127.0.0.1.

  control-plane up --dir DIR [flags]         start it, wait until it can run pods, leave it running
  control-plane up --dir DIR --foreground    the same, and end it again on SIGTERM, SIGINT or when standard input ends
  control-plane down --dir DIR [--remove]    end what runs under DIR; harmless when nothing does
  control-plane record --dir DIR --name NAME --pid PID
                                             have 'down' end this process too, before the control plane

Flags of up:
  --dir DIR            where everything lives: pki/, etcd/, logs/, pids, audit.log, kubeconfig, kubeconfig-operator
  --bin DIR            the folder with etcd, kube-apiserver, … (default: the folder this program is in)
  --port N             port of kube-apiserver (default: a free one)
  --nodes N            simulated nodes (default 1)
  --audit-users A,B    users in the audit log besides numaplane-operator
  --timeout DURATION   give up when it is not ready by then (default 3m)
  --quiet              print the line that says it is ready, nothing else
  --foreground         keep running; for tests, which hold the other end of standard input
  --remove             with --foreground: remove DIR at the end

Flags of down:
  --dir DIR            as for up. Logs and the audit log are kept
  --remove             remove DIR altogether

Under DIR, kubeconfig is an administrator's; kubeconfig-operator is one too, but its user is numaplane-operator, whose
requests are in audit.log, one JSON object a line. Both appear only once the control plane is ready. 'pids' is JSON too:
the processes to end, each with the start time that tells it from a later process with the same id.

Pods run nowhere: they become Running and Ready at once, and those of Jobs complete. Labels or annotations change that:
  numaplane.test/behaviour: never-ready      runs, but is not Ready as long as the label is there
  numaplane.test/behaviour: image-pull       stays Pending with ImagePullBackOff; so does any image of a registry
                                             under .invalid, as in registry.invalid/numaflow:v9
  numaplane.test/behaviour: crash-loop       Ready for numaplane.test/crash-after seconds (5), then CrashLoopBackOff for
                                             numaplane.test/restart-after seconds (10), and again
  numaplane.test/ready-after: "SECONDS"      becomes Ready that long after it started
`

func main() {
	err := run(os.Args[1:])
	var wrong usageError
	switch {
	case err == nil:
	case errors.As(err, &wrong):
		fmt.Fprintf(os.Stderr, "control-plane: %v; see control-plane --help\n", err)
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "control plane: %v\n", err)
		os.Exit(1)
	}
}

// usageError is a mistake in the command line, as opposed to something that went wrong while doing what it asks.
type usageError string

func (e usageError) Error() string { return string(e) }

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return usageError("no command given")
	}
	command, args := args[0], args[1:]
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	dir := flags.String("dir", "", "")
	var do func(dir string) error

	switch command {
	case "help", "-h", "--help", "-help":
		fmt.Print(usage)
		return nil
	case "up":
		var o upOptions
		var users string
		flags.StringVar(&o.bin, "bin", "", "")
		flags.IntVar(&o.port, "port", 0, "")
		flags.IntVar(&o.nodes, "nodes", 1, "")
		flags.StringVar(&users, "audit-users", "", "")
		flags.DurationVar(&o.timeout, "timeout", 3*time.Minute, "")
		flags.BoolVar(&o.quiet, "quiet", false, "")
		flags.BoolVar(&o.foreground, "foreground", false, "")
		flags.BoolVar(&o.remove, "remove", false, "")
		do = func(dir string) error {
			switch {
			case o.port < 0 || o.port > 65535:
				return usageError(fmt.Sprintf("--port %d is not a port", o.port))
			case o.nodes < 1 || o.nodes > maxNodes:
				return usageError(fmt.Sprintf("--nodes %d: between 1 and %d nodes can be simulated", o.nodes, maxNodes))
			case o.timeout <= 0:
				return usageError(fmt.Sprintf("--timeout %s is no time to wait", o.timeout))
			case o.remove && !o.foreground:
				return usageError("--remove goes with --foreground; without it, use control-plane down --remove")
			}
			o.auditUsers = []string{operatorUser}
			for _, user := range strings.Split(users, ",") {
				if user = strings.TrimSpace(user); user != "" {
					o.auditUsers = append(o.auditUsers, user)
				}
			}
			return up(dir, o)
		}
	case "down":
		remove := flags.Bool("remove", false, "")
		do = func(dir string) error { return down(dir, *remove) }
	case "record":
		name := flags.String("name", "", "")
		pid := flags.Int("pid", 0, "")
		do = func(dir string) error {
			if *name == "" || *pid <= 0 {
				return usageError("record needs --name and --pid")
			}
			return record(dir, *name, *pid)
		}
	default:
		return usageError(fmt.Sprintf("there is no command '%s', only up, down and record", command))
	}

	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return nil
	} else if err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() > 0 {
		return usageError(fmt.Sprintf("%s takes flags only, not '%s'", command, flags.Arg(0)))
	}
	if *dir == "" {
		return usageError(command + " needs --dir")
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return errors.New("needs Linux: processes are told apart by what /proc says of them")
	}
	absolute, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	return do(absolute)
}
