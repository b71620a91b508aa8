package daemon

import (
	"net/http"

	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// explain answers which limits apply to a descriptor, and why others do not. It decides nothing.
func (a *api) explain(w http.ResponseWriter, r *http.Request) {
	var d rules.Descriptor
	var domain *string
	if !readFields(w, r, fields{"descriptor": entriesField("descriptor", &d),
		"domain": value(&domain, text(`"domain" must be a string.`))}) {
		return
	}
	if d == nil {
		invalid(`The request has no "descriptor".`).Write(w)
		return
	}
	if domain == nil {
		domain = new(string)
	}
	c := a.config
	if c == nil {
		c = &config.Config{Set: a.decider.Set()}
	}
	writeJSON(w, http.StatusOK, inspect.Of(c, *domain, d))
}
