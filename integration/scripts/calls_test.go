package scripts

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/conformance"
)

// runCall sends a call without a store, and its script if the server lacks it.
func runCall(t testing.TB, client redis.UniversalClient, call *lua.Run) string {
	t.Helper()
	program := call.Program()
	reply, err := client.EvalSha(t.Context(), program.SHA, call.Keys(), argsOf(call)...).Text()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = client.Eval(t.Context(), program.Source, call.Keys(), argsOf(call)...).Text()
	}
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func argsOf(call *lua.Run) []any { return anys(call.Args()) }

// anys returns texts in the form that the client takes.
func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// evalBy returns what CheckLua needs of a client.
func evalBy(client redis.UniversalClient) conformance.Eval {
	return func(ctx context.Context, script string, keys, args []string) (string, error) {
		return client.Eval(ctx, script, keys, anys(args)...).Text()
	}
}

// A pipeline sends calls that run on one server, and each script once.
type pipeline struct {
	redis.Pipeliner
	sent map[string]bool // loaded scripts, by SHA
}

func newPipeline(client redis.UniversalClient) *pipeline {
	return &pipeline{client.Pipeline(), make(map[string]bool)}
}

// newTransaction returns a pipeline whose commands all run at one time of the server, so that no
// state runs out between a step and the command after it.
func newTransaction(client redis.UniversalClient) *pipeline {
	return &pipeline{client.TxPipeline(), make(map[string]bool)}
}

func (p *pipeline) run(t testing.TB, call *lua.Run) *redis.Cmd {
	program := call.Program()
	if p.sent[program.SHA] {
		return p.EvalSha(t.Context(), program.SHA, call.Keys(), argsOf(call)...)
	}
	p.sent[program.SHA] = true
	return p.Eval(t.Context(), program.Source, call.Keys(), argsOf(call)...)
}
