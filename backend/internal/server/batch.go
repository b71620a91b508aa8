package server

import (
	"context"
	"slices"
)

// A Batcher is a [Client] of a cluster that can send several commands at once, in one pipeline for each server.
type Batcher interface {
	// Owner names the server that has key, as far as the client knows without asking anybody; else it is empty.
	Owner(key string) string

	// RunBatch is [Client].Run for each of batch, all together. It returns when each has its Reply or Err.
	RunBatch(ctx context.Context, batch []Command)
}

// Command is one of a batch.
type Command struct {
	Gate         *Gate
	Verb, Script string
	Keys, Args   []string

	Reply      string
	Err        error
	Redirected bool // a server has answered that the slot is on another, or moves there
}

// parcel is what a batch carries for one slot.
type parcel struct {
	slot   int
	groups []Group
	call   *call
}

// decideBatch is decideGroups for groups of several slots: those of each slot go in a call of their own, all calls in one batch.
// It knows of no deny cache: clients that have one are no Batchers.
func (s *Store) decideBatch(ctx context.Context, gate *Gate, groups []Group) error {
	parcels := bySlot(groups)
	if len(parcels) == 1 {
		return s.decideGroups(ctx, gate, groups)
	}
	batch := make([]Command, len(parcels))
	for i := range parcels {
		p := &parcels[i]
		p.call = s.scratch.Get().(*call)
		defer s.scratch.Put(p.call)
		if err := p.call.load(p.groups); err != nil {
			return err
		}
		p.call.gate.of = gate
		script := &p.call.script
		batch[i] = Command{Gate: &p.call.gate, Verb: "evalsha", Script: script.Program().SHA, Keys: script.Keys(), Args: script.Args()}
	}
	s.lanes.batcher.RunBatch(ctx, batch)
	s.runUnknown(ctx, parcels, batch)
	for i := range parcels {
		s.deliver(ctx, &parcels[i], &batch[i])
	}
	return nil
}

// runUnknown sends those scripts whole whose names the server did not know.
func (s *Store) runUnknown(ctx context.Context, parcels []parcel, batch []Command) {
	var unknown []int
	var whole []Command
	for i := range batch {
		if b := &batch[i]; s.noScript(b.Err) && b.Gate.Shut() {
			b.Verb, b.Script = "eval", parcels[i].call.script.Program().Source
			unknown, whole = append(unknown, i), append(whole, *b)
		}
	}
	if len(whole) == 0 {
		return
	}
	s.lanes.batcher.RunBatch(ctx, whole)
	for j, i := range unknown {
		batch[i] = whole[j]
	}
}

// deliver fills in what came of the groups of p.
func (s *Store) deliver(ctx context.Context, p *parcel, b *Command) {
	moving := s.tryAgain(b.Err)
	if b.Redirected || moving {
		s.lanes.setApart(p.slot)
	}
	err := error(nil)
	switch {
	case moving && len(p.groups) > 1 && b.Gate.Shut():
		err = s.decideApart(ctx, b.Gate, p.groups)
	case b.Err != nil:
		err = s.failure(b.Err, b.Gate.Opened())
	default:
		for i := range p.groups {
			p.groups[i].Err = p.call.script.Results(b.Reply, i, p.groups[i].Results)
		}
		return
	}
	if err != nil {
		for i := range p.groups {
			p.groups[i].Err = err
		}
	}
}

// bySlot sorts groups by slot, each slot's in the order in which they came.
func bySlot(groups []Group) []parcel {
	var buf [maxGroups]uint32
	order := buf[:0] // slot and index
	for i := range groups {
		order = append(order, uint32(Slot(groups[i].Keys[0]))<<16|uint32(i))
	}
	slices.Sort(order)
	sorted := make([]Group, len(groups))
	for i, o := range order {
		sorted[i] = groups[o&0xffff]
	}
	copy(groups, sorted)
	var parcels []parcel
	for i, first := 0, 0; i < len(order); i++ {
		if i+1 == len(order) || order[i+1]>>16 != order[i]>>16 {
			parcels = append(parcels, parcel{slot: int(order[i] >> 16), groups: groups[first : i+1]})
			first = i + 1
		}
	}
	return parcels
}
