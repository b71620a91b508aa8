package envoy

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// maxCall is the largest size in bytes of a call that is decided. A header of Envoy has 60 KiB
	// at most by default, and may be in several descriptors.
	maxCall = 4 << 20
	// maxReceived is the largest size of a message that is received, so that those above maxCall
	// are counted and logged. The library refuses larger ones, and does neither.
	maxReceived = 2 * maxCall
)

// A codec reads texts as the bytes that they are. That of protocol buffers has an error for a
// message with a text that is not UTF-8, and Envoy admits by default what is an error. So a
// client that sends a header that is not UTF-8 would get around all limits by headers.
type codec struct {
	encoding.CodecV2
	*Service
}

// codecOptions are those of a server about the messages of s.
func codecOptions(s *Service) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name), s}),
		grpc.MaxRecvMsgSize(maxReceived),
		//nolint:staticcheck // a dependency registers a decompressor for the whole process
		grpc.RPCDecompressor(compressed{s}),
	}
}

var errCompressed = errors.New("the message is compressed: send it as it is")

// A compressed refuses messages that are compressed. A few bytes would take the memory of a long
// message on each stream, and nothing could bound that before. Envoy compresses none.
type compressed struct{ *Service }

func (compressed) Type() string { return "gzip" }

func (c compressed) Do(io.Reader) ([]byte, error) {
	c.counts.calls.Add(1)
	return nil, c.invalid("", errCompressed)
}

// Unmarshal reads a message, of which v is a pointer.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if data.Len() > maxCall {
		c.counts.calls.Add(1)
		return c.invalid("", fmt.Errorf("the message is longer than %d bytes", maxCall))
	}
	m, ok := v.(protobuf.Message)
	if ok && tooMany(m.ProtoReflect().Descriptor(), data) {
		c.counts.calls.Add(1)
		return c.invalid("", errElements)
	}
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil || !ok {
		return err
	}
	protobuf.Reset(m)
	if readBytes(m.ProtoReflect(), data.Materialize()) != nil {
		c.counts.calls.Add(1)
		return c.invalid("", err)
	}
	c.counts.notUTF8.Add(1)
	return nil
}

// readBytes reads a message, and does not check that texts are UTF-8.
func readBytes(m protoreflect.Message, wire []byte) error {
	var rest []byte // fields without a text
	for len(wire) > 0 {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, wire[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		whole, value := wire[:n+size], wire[n:n+size]
		wire = wire[n+size:]
		f := m.Descriptor().Fields().ByNumber(number)
		if f == nil || f.IsMap() || kind != protowire.BytesType ||
			f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.MessageKind {
			rest = append(rest, whole...)
			continue
		}
		text, _ := protowire.ConsumeBytes(value)
		if err := readField(m, f, text); err != nil {
			return err
		}
	}
	return protobuf.UnmarshalOptions{Merge: true}.Unmarshal(rest, m.Interface())
}

// readField reads a field that is a text, a message or a list of them. It is called for each
// element.
func readField(m protoreflect.Message, f protoreflect.FieldDescriptor, text []byte) error {
	isText := f.Kind() == protoreflect.StringKind
	switch {
	case isText && f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString(string(text)))
	case isText:
		m.Set(f, protoreflect.ValueOfString(string(text)))
	case f.IsList():
		return readBytes(m.Mutable(f).List().AppendMutable().Message(), text)
	default:
		return readBytes(m.Mutable(f).Message(), text)
	}
	return nil
}
