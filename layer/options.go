package layer

import "errors"

// ErrInvalidOptions says that a layer cannot be made of what its constructor was given.
var ErrInvalidOptions = errors.New("layer: invalid options")
