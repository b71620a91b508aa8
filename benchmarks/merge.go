package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A part describes a separate run that measured some subjects of a report.
type part struct {
	Subjects []string
	Started  time.Time
	Took     time.Duration
	Command  string
	Quick    bool
	Machine  []fact
	Rounds   int
}

// merge replaces the subjects that newer has measured, each as a whole, and adds those that r
// lacks.
func (r *report) merge(newer *report) error {
	var measured []string
	for _, t := range newer.Tables {
		if !slices.Contains(measured, t.Subject) {
			measured = append(measured, t.Subject)
		}
	}
	if err := r.keepsColumns(newer); err != nil {
		return err
	}
	if err := r.mergeEntries(newer); err != nil {
		return err
	}
	again := func(subject string) bool { return slices.Contains(measured, subject) }
	for _, subject := range measured {
		r.replaceTables(subject, newer.Tables)
	}
	r.Targets = append(
		slices.DeleteFunc(r.Targets, func(v verdict) bool { return again(v.Subject) }),
		newer.Targets...)
	r.Failures = append(slices.DeleteFunc(r.Failures, func(f string) bool {
		subject, _, _ := strings.Cut(f, ",")
		return again(subject)
	}), newer.Failures...)
	for i := range r.Parts {
		r.Parts[i].Subjects = slices.DeleteFunc(r.Parts[i].Subjects, again)
	}
	r.Parts = append(
		slices.DeleteFunc(r.Parts, func(p part) bool { return len(p.Subjects) == 0 }),
		part{measured, newer.Started, newer.Took, newer.Command, newer.Quick, newer.Machine,
			newer.Rounds})
	return nil
}

// replaceTables replaces the tables of a subject by those in newer, or adds them at the end.
func (r *report) replaceTables(subject string, newer []table) {
	isOf := func(t table) bool { return t.Subject == subject }
	at := slices.IndexFunc(r.Tables, isOf)
	if at < 0 {
		at = len(r.Tables)
	}
	r.Tables = slices.DeleteFunc(r.Tables, isOf)
	for _, t := range newer {
		if isOf(t) {
			r.Tables = slices.Insert(r.Tables, at, t)
			at++
		}
	}
}

// keepsColumns returns an error if newer has measured only some cases of a subject of r.
func (r *report) keepsColumns(newer *report) error {
	for _, t := range newer.Tables {
		for _, old := range r.Tables {
			if old.Subject != t.Subject || old.Metric.Name != t.Metric.Name {
				continue
			}
			for _, c := range old.Columns {
				if !slices.Contains(t.Columns, c) {
					return fmt.Errorf("the report has %s/%s, which was not measured: "+
						"measure the whole subject", t.Subject, c)
				}
			}
		}
	}
	return nil
}

// mergeEntries adds the entries and versions that r lacks. It returns an error if r has another
// version of an entry, because the figures of both would be mixed.
func (r *report) mergeEntries(newer *report) error {
	for where, entries := range newer.Entries {
		for _, e := range entries {
			if slices.Contains(r.Entries[where], e) {
				if was, is := r.Versions[e.Module], newer.Versions[e.Module]; was != is {
					return fmt.Errorf("the report has %s %s, which is now %s: measure everything",
						e.Module, was, is)
				}
				continue
			}
			r.Entries[where] = append(r.Entries[where], e)
		}
	}
	versions := maps.Clone(newer.Versions)
	maps.Copy(versions, r.Versions)
	r.Versions = versions
	return nil
}
