package access

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/readfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// A File has names and rights of tokens and of certificates, and the rights of anyone, in YAML.
type File struct {
	path    string
	current atomic.Pointer[content]
}

// content is what a file has.
type content struct {
	anyone               Rights
	tokens, certificates []entry
}

// NewFile returns a file, which is not read yet.
func NewFile(path string) *File { return &File{path: path} }

// Read reads the file and puts what it has in force. After an error that of before is. The error
// is a [yamlfile.Problems], or that of reading it, and quotes no value.
func (f *File) Read() error {
	data, err := readfile.Credentials(f.path)
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	c, err := parse(f.path, data)
	if err != nil {
		return fmt.Errorf("access: %w", err)
	}
	f.current.Store(c)
	return nil
}

func (f *File) token(sum *[sha256.Size]byte) *Caller {
	if f == nil {
		return nil
	}
	return findToken(f.current.Load().tokens, sum)
}

func (f *File) certificate(of *x509.Certificate) *Caller {
	if f == nil {
		return nil
	}
	entries := f.current.Load().certificates
	i := slices.IndexFunc(entries, func(e entry) bool { return e.has(of) })
	if i < 0 {
		return nil
	}
	return &entries[i].Caller
}

func (f *File) hasWriter() bool {
	if f == nil {
		return false
	}
	c := f.current.Load()
	writes := func(e entry) bool { return e.May(ToWrite) }
	return slices.ContainsFunc(c.tokens, writes) || slices.ContainsFunc(c.certificates, writes)
}

// format quotes no key, which may be a token in the wrong place.
var format = yamlfile.Format{Strict: true,
	Unknown: func(_, what string, known []string) string {
		return what + " has an unknown key; the keys are " + strings.Join(known, ", ")
	}}

// parser reads a file. It never adds a problem of yamlfile that quotes a value.
type parser struct {
	yamlfile.File
	names, taken map[string]bool // of credentials; what identifies them
}

func parse(path string, data []byte) (*content, error) {
	var problems yamlfile.Problems
	p := &parser{File: yamlfile.File{Name: path, Problems: &problems, Format: &format},
		names: make(map[string]bool), taken: make(map[string]bool)}
	c := &content{anyone: ToDecide | ToSettle}
	if root := p.Parse(data); root != nil {
		p.content(c, root)
	}
	return c, problems.Err()
}

// isMap reports whether n is a map, and adds a problem if it is not.
func (p *parser) isMap(n *yaml.Node, what string) bool {
	if n.Kind != yaml.MappingNode {
		p.Add(n, "%s is a map", what)
		return false
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode || seen[key.Value] {
			p.Add(key, "%s has a key twice, or one that is no text", what)
			return false
		}
		seen[key.Value] = true
	}
	return true
}

// list returns the elements of a list, which is not empty.
func (p *parser) list(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.Add(n, "%s is a list of at least one element", what)
		return nil
	}
	return n.Content
}

// text returns the text of n, or "" without one.
func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" {
		p.Add(n, "%s is a text; a number needs quotation marks", what)
		return ""
	}
	return n.Value
}

func (p *parser) content(c *content, root *yaml.Node) {
	if !p.isMap(root, "the file") {
		return
	}
	known := []string{"anyone", "tokens", "certificates"}
	values, _ := p.Fields(root, "the file", known...)
	if n := values["anyone"]; n != nil {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 { // nobody without a credential
			c.anyone = 0
		} else if c.anyone = p.rights(n, "anyone"); c.anyone&ToWrite != 0 {
			p.Add(n, "anyone may not write: that needs a token or a certificate")
		}
	}
	if n := values["tokens"]; n != nil {
		for _, element := range p.list(n, "tokens") {
			c.tokens = append(c.tokens, p.token(element))
		}
	}
	if n := values["certificates"]; n != nil {
		for _, element := range p.list(n, "certificates") {
			c.certificates = append(c.certificates, p.certificate(element))
		}
	}
}

// token reads a token, which has either its hash or itself.
func (p *parser) token(n *yaml.Node) (e entry) {
	values := p.credential(n, "a token", &e, ByToken, "sha256", "token")
	if values == nil {
		return e
	}
	hash, plain := values["sha256"], values["token"]
	switch {
	case (hash == nil) == (plain == nil):
		p.Add(n, "a token has either sha256 or token")
		return e
	case hash != nil:
		sum, err := hex.DecodeString(p.text(hash, "sha256"))
		if err != nil || len(sum) != sha256.Size {
			p.Add(hash, "sha256 is the hash of the token, as 64 hexadecimal digits")
			return e
		}
		copy(e.sum[:], sum)
	default:
		text := p.text(plain, "token")
		if wrong := wrongToken([]byte(text)); wrong != "" {
			p.Add(plain, "this is %s", wrong)
		}
		e.sum = sha256.Sum256([]byte(text))
	}
	p.once(n, "this token", "token "+string(e.sum[:]))
	return e
}

// certificate reads a certificate, which has either a subject or an alternative name.
func (p *parser) certificate(n *yaml.Node) (e entry) {
	values := p.credential(n, "a certificate", &e, ByCertificate, "subject", "san")
	if values == nil {
		return e
	}
	subject, san := values["subject"], values["san"]
	switch {
	case (subject == nil) == (san == nil):
		p.Add(n, "a certificate has either subject or san")
		return e
	case subject != nil:
		e.subject = p.text(subject, "subject")
	default:
		e.san = p.text(san, "san")
	}
	p.once(n, "this certificate", "subject "+e.subject+" san "+e.san)
	return e
}

// credential reads what tokens and certificates have, and returns all values.
func (p *parser) credential(
	n *yaml.Node, what string, e *entry, kind string, own ...string,
) map[string]*yaml.Node {
	if !p.isMap(n, what) {
		return nil
	}
	values, _ := p.Fields(n, what, append([]string{"name", "may", "limits"}, own...)...)
	e.Kind = kind
	if name := values["name"]; name == nil {
		p.Add(n, "%s has a name", what)
	} else if e.Name = p.text(name, "name"); e.Name != "" {
		if wrong := wrongName(e.Name); wrong != "" {
			p.Add(name, "this is %s", wrong)
		} else if p.names[kind+e.Name] {
			p.Add(name, "another credential has this name")
		}
		p.names[kind+e.Name] = true
	}
	if may := values["may"]; may == nil {
		p.Add(n, "%s has a list may, of %s", what, all)
	} else {
		e.may = p.rights(may, "may")
	}
	if limits := values["limits"]; limits != nil {
		e.limits = []string{}
		for _, limit := range p.list(limits, "limits") {
			e.limits = append(e.limits, p.text(limit, "the name of a limit"))
		}
	}
	return values
}

// once adds a problem for a credential that is in the file already.
func (p *parser) once(n *yaml.Node, what, identity string) {
	if p.taken[identity] {
		p.Add(n, "%s is in the file already", what)
	}
	p.taken[identity] = true
}

func (p *parser) rights(n *yaml.Node, what string) (r Rights) {
	for _, element := range p.list(n, what) {
		i := slices.Index(names, element.Value)
		if i < 0 || element.Kind != yaml.ScalarNode {
			p.Add(element, "%s has one of %s in each place", what, all)
			continue
		}
		r |= 1 << i
	}
	return r
}
