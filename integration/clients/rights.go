package clients

import (
	"strings"
)

// The rights that the packages document.
const (
	DecisionRights = "+evalsha +eval +time +getrange +strlen +set +setrange +pexpireat +pexpire " +
		"+del +hget +hset +hdel +hscan"
	CacheRights   = "+client|tracking +client|caching +multi +exec +eval_ro +evalsha_ro"
	ClusterRights = "+cluster|slots +cluster|shards"
)

// ACL returns the command that gives these rights to the user "cacher" with the password "hunter2".
func ACL(rights string) []any {
	args := []any{"ACL", "SETUSER", "cacher", "reset", "on", ">hunter2", "~rl:*"}
	for rule := range strings.FieldsSeq(rights) {
		args = append(args, rule)
	}
	return args
}
