package rules

// Limit returns the limit of a name, or nil. It must not be changed.
func (s *Set) Limit(name string) *Limit {
	if i, ok := s.byName[name]; ok {
		return s.limits[i]
	}
	return nil
}

// Named returns the limit of a name with a key of the store, whatever its conditions. The values of
// the key are the entries of [Limit.Key]; d has further ones. Without the entry missing, if it is
// not "", the rate is not known: the Match has that of the limit for requests without it. ok is
// false if there is no such limit.
func (s *Set) Named(name, key string, d Descriptor) (m Match, missing string, ok bool) {
	i, ok := s.byName[name]
	if !ok {
		return Match{}, "", false
	}
	l, c := s.limits[i], &s.compiled[i]
	r := s.requests.Get().(*request)
	values, known := valuesOf(key, len(l.Key))
	for n, entry := range l.Key {
		if known[n] {
			r.set(s, &Entry{Name: entry, Value: values[n]})
		}
	}
	r.read(s, "", d)
	m, missing = Match{Variant: c.variant(r), Key: key}, c.missing(l, r)
	r.clear()
	s.requests.Put(r)
	return m, missing, true
}

// OfKey returns the limit of a name with the rate of a key of the store, as far as that tells it,
// or else with one that counts. It is nil without either.
func (s *Set) OfKey(name, key string) *Variant {
	m, _, ok := s.Named(name, key, nil)
	if ok && m.Algorithm == nil {
		m.Variant = nil
		for _, v := range s.variants {
			if v.Limit.Name == name && v.Algorithm != nil {
				return v
			}
		}
	}
	return m.Variant
}

// missing returns the entry that decides which rate of l a request has, and that it lacks, or "".
func (c *compiled) missing(l *Limit, r *request) string {
	for i, conditions := range c.when {
		if c.until != nil && c.over(i) {
			continue
		}
		lacks, may := "", true
		for n, condition := range conditions {
			if !r.has[condition.entry] {
				lacks = l.Except[i].When[n].Entry
			} else if !condition.matches(r) {
				may = false
			}
		}
		switch {
		case may && lacks != "":
			return lacks
		case may:
			return ""
		}
	}
	if c.by != nil && !r.has[c.entry] {
		return l.By.Entry
	}
	return ""
}
