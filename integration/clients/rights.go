package clients

import (
	"strings"
)

// What the packages' documentation says that a user needs.
const (
	DecisionRights = "+evalsha +eval +time +getrange +strlen +set +setrange +pexpireat +pexpire " +
		"+del"
	CacheRights   = "+client|tracking +client|caching +multi +exec +eval_ro +evalsha_ro"
	ClusterRights = "+cluster|slots +cluster|shards"
)

// ACL makes the user "cacher", whose password is "hunter2", one with these rights.
func ACL(rights string) []any {
	args := []any{"ACL", "SETUSER", "cacher", "reset", "on", ">hunter2", "~rl:*"}
	for rule := range strings.FieldsSeq(rights) {
		args = append(args, rule)
	}
	return args
}
