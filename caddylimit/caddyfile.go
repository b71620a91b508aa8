package caddylimit

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

const directive = "limits"

func init() {
	httpcaddyfile.RegisterHandlerDirective(directive,
		func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
			handler := new(Handler)
			return handler, handler.UnmarshalCaddyfile(h.Dispenser)
		})
	// Behind authentication, whose result can be a key.
	httpcaddyfile.RegisterDirectiveOrder(directive, httpcaddyfile.After, "forward_auth")
}

// UnmarshalCaddyfile reads the directive:
//
//	limits [<matcher>] {
//		store         <url>
//		limit         <name> <max> {
//			algorithm <name>
//			key       <part>...
//			units     <number>
//		}
//		on_failure    open|closed
//		handle_errors
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive
	if d.NextArg() {
		return d.Errf("write the limits in a block, such as %s { limit api 100/1m }", directive)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch name := d.Val(); name {
		case "store":
			if err := one(d, &h.Store); err != nil {
				return err
			}
		case "limit":
			if err := h.unmarshalLimit(d); err != nil {
				return err
			}
		case "on_failure":
			if err := one(d, &h.OnFailure); err != nil {
				return err
			}
		case "handle_errors":
			if d.NextArg() {
				return d.ArgErr()
			}
			h.HandleErrors = true
		default:
			return d.Errf("%s of %s is not one of store, limit, on_failure and handle_errors",
				name, directive)
		}
	}
	if err := h.check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

func (h *Handler) unmarshalLimit(d *caddyfile.Dispenser) error {
	var l Limit
	if !d.Args(&l.Name, &l.Max) || d.NextArg() {
		return d.Errf("write limit <name> <max>, such as limit api 100/1m")
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch name := d.Val(); name {
		case "algorithm":
			if err := one(d, &l.Algorithm); err != nil {
				return err
			}
		case "key":
			if l.Key != nil {
				return d.Errf("key of limit %s is there twice: write the parts in one line", l.Name)
			}
			if l.Key = d.RemainingArgs(); len(l.Key) == 0 {
				return d.ArgErr()
			}
		case "units":
			if err := one(d, &l.Units); err != nil {
				return err
			}
		default:
			return d.Errf("%s of limit %s is not one of algorithm, key and units", name, l.Name)
		}
	}
	if err := l.check(); err != nil {
		return d.WrapErr(err)
	}
	h.Limits = append(h.Limits, l)
	return nil
}

// one reads the only argument of a line into an option, which may be there once.
func one(d *caddyfile.Dispenser, option *string) error {
	name := d.Val()
	if *option != "" {
		return d.Errf("%s is there twice", name)
	}
	if !d.Args(option) || d.NextArg() {
		return d.ArgErr()
	}
	if *option == "" {
		return d.Errf("%s is empty", name)
	}
	return nil
}

var _ caddyfile.Unmarshaler = (*Handler)(nil)
