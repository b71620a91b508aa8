package algorithm

import "embed"

// luaFiles has the Lua steps that are one file each, and product.lua, which some include.
//
//go:embed *.lua
var luaFiles embed.FS
