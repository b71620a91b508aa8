package decision

const MaxOverrides = maxOverrides

// Overrides returns how many limiters of overrides d keeps.
func (d *Decider) Overrides() int { return len(d.current.Load().overrides) }
