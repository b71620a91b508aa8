package main

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A snapshot is what the server has counted so far.
type snapshot struct {
	calls, usec   float64 // of commands from clients
	reads         float64
	in, out       float64 // bytes, without replication
	offset        float64 // of replication
	appended      float64 // bytes of the append-only file, 0 if there is none
	cpu           float64 // seconds
	inOwn, outOwn float64 // bytes of the snapshot's own command and reply
}

// info returns the fields of INFO.
func (s *server) info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := s.control.Info(ctx, sections...).Result()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{"": strconv.Itoa(len(text))}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = v
		}
	}
	return fields, nil
}

var scriptCommands = []string{"evalsha", "eval"}

// snapshot counts the calls of the named commands, or of scripts if commands is nil. The time of a
// script includes that of the commands that it runs.
func (s *server) snapshot(ctx context.Context, commands []string) (snapshot, error) {
	if commands == nil {
		commands = scriptCommands
	}
	fields, err := s.info(ctx, "stats", "commandstats", "replication", "cpu", "persistence")
	if err != nil {
		return snapshot{}, err
	}
	get := func(name string) float64 {
		v, err := strconv.ParseFloat(fields[name], 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	orNone := func(name string) float64 { // some servers lack the field
		if v := get(name); !math.IsNaN(v) {
			return v
		}
		return 0
	}
	snap := snapshot{
		reads:  get("total_reads_processed"),
		in:     get("total_net_input_bytes") - orNone("total_net_repl_input_bytes"),
		out:    get("total_net_output_bytes") - orNone("total_net_repl_output_bytes"),
		offset: get("master_repl_offset"), appended: orNone("aof_current_size"),
		cpu:   get("used_cpu_user") + get("used_cpu_sys"),
		inOwn: 70, outOwn: get(""),
	}
	for name, v := range fields {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || !slices.Contains(commands, command) {
			continue
		}
		for part := range strings.SplitSeq(v, ",") {
			field, text, _ := strings.Cut(part, "=")
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				continue
			}
			switch field {
			case "calls":
				snap.calls += n
			case "usec":
				snap.usec += n
			}
		}
	}
	return snap, nil
}

// since returns the counts since before, without those of the snapshots themselves.
func (s snapshot) since(before snapshot) snapshot {
	return snapshot{
		calls: s.calls - before.calls, usec: s.usec - before.usec,
		reads: s.reads - before.reads - 1,
		in:    s.in - before.in - before.inOwn, out: s.out - before.out - before.outOwn,
		offset: s.offset - before.offset, appended: s.appended - before.appended,
		cpu: s.cpu - before.cpu,
	}
}

// round2 rounds to two digits, to remove the small cost of measuring.
func round2(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }
