package servers

// Module is the root of the module as the tests of every folder see it from where they run.
const Module = "../.."
