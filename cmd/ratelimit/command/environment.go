package command

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// envPrefix begins the names of the variables of the service.
const envPrefix = "RATELIMIT_"

// serviceLink matches the variables that container platforms set for a service named ratelimit, or
// ratelimit- and more, in every container beside it.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|` +
	`_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// checkEnvironment returns an error if a command that reads variables is called, and one that
// begins with envPrefix is none of them: it would be misspelled, and not noticed. Empty variables
// are removed, since kong reads them, and newlines at the end of others.
func checkEnvironment(model *kong.Application, args []string) error {
	known, reads := make(map[string]bool), false
	for _, command := range model.Children {
		for _, flag := range command.Flags {
			for _, name := range flag.Envs {
				known[name] = true
				reads = reads || len(args) > 0 && command.Name == args[0]
			}
		}
	}
	if !reads {
		return nil
	}
	var unknown []string
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case !strings.HasPrefix(name, envPrefix):
		case strings.TrimRight(value, "\r\n") == "":
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		case !known[name] && !isServiceLink(name, value):
			unknown = append(unknown, name)
		case strings.HasSuffix(value, "\n"): // as of a file of a secret
			if err := os.Setenv(name, strings.TrimRight(value, "\r\n")); err != nil {
				return err
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("the environment has %s, which is no setting: see \"ratelimit serve --help\"",
		strings.Join(unknown, ", "))
}

func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) ||
		strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}
