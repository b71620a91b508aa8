package envoy

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxElements bounds the descriptors, entries and other objects of a call before it is read: an
// empty one has two bytes, and a hundred when it has been read, so that some calls could take all
// memory.
const maxElements = 1 + maxDescriptors*(3+maxEntries)

var errElements = fmt.Errorf("there are more than %d descriptors and entries", maxElements)

// tooMany reports whether a message has more than maxElements.
func tooMany(m protoreflect.MessageDescriptor, data mem.BufferSlice) bool {
	if data.Len() <= 2*maxElements {
		return false
	}
	wire := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer wire.Free()
	return countElements(m, wire.ReadOnlyData(), 0) > maxElements
}

// countElements returns count and the messages in the fields of a message, up to the first one that
// is too many, or to what is no field, with which reading ends too.
func countElements(m protoreflect.MessageDescriptor, wire []byte, count int) int {
	for len(wire) > 0 && count <= maxElements {
		number, kind, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return count
		}
		size := protowire.ConsumeFieldValue(number, kind, wire[n:])
		if size < 0 {
			return count
		}
		f := m.Fields().ByNumber(number)
		if f != nil && kind == protowire.BytesType && f.Message() != nil {
			value, _ := protowire.ConsumeBytes(wire[n:])
			count = countElements(f.Message(), value, count+1)
		}
		wire = wire[n+size:]
	}
	return count
}

// tooManyObjects is tooMany for JSON.
func tooManyObjects(text []byte) bool {
	if len(text) <= 2*maxElements {
		return false
	}
	count, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			inString = !inString
		case inString && text[i] == '\\':
			i++
		case !inString && text[i] == '{':
			count++
		}
	}
	return count > maxElements
}
