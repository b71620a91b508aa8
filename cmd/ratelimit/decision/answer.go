package decision

import "github.com/truewindow/ratelimit"

// decision returns the answer of p, and counts it.
func (p *plan) decision(id string) Decision {
	d := Decision{ID: id, Allowed: true, Parts: make([]Part, len(p.ends))}
	for i := range p.uses {
		u := &p.uses[i]
		p.warn(u)
		p.count(u)
	}
	d.Allowed = !refused(p.uses)
	statuses := make([]Status, len(p.statuses))
	for i, at := range p.statuses {
		statuses[i] = p.uses[at].status
	}
	from, matched := 0, 0
	for i, end := range p.ends {
		d.Parts[i].Statuses = statuses[from:end:end]
		if end > from {
			matched++
		}
		from = end
	}
	if p.opts.Peek {
		return d
	}
	counts := &p.decider.counters
	counts.decisions.Add(1)
	counts.matched.Add(int64(matched))
	counts.unmatched.Add(int64(len(p.ends) - matched))
	return d
}

func (p *plan) count(u *use) {
	if p.opts.Peek {
		return
	}
	if u.status.Warned {
		p.inForce.counts[u.variant.Limit].warned.Add(1)
		p.decider.warn(u.status.Result.Limit)
	}
	if u.status.Shadow && !u.status.Allowed {
		p.inForce.counts[u.variant.Limit].shadowRefused.Add(1)
	}
}

// refuses reports whether u refuses the whole call, or if it is one of limits with Quota whether it
// does so if all of them do.
func (u *use) refuses() bool { return !u.status.Allowed && !u.status.Shadow }

// warn sets whether u has a warning.
func (p *plan) warn(u *use) {
	res, share := &u.status.Result, u.variant.Limit.Warn
	if share <= 0 || !u.status.Asked || res.Source == ratelimit.SourceOpen || isBlock(u.variant) {
		return
	}
	most := float64(res.Limit.Max)
	used := most - float64(res.Remaining)
	if p.opts.Peek && res.Allowed {
		used += float64(u.n)
	}
	// A share such as 0.55 of 100 is a little more than 55 in binary.
	u.status.Warned = used >= share*most*(1-1e-12)
}
