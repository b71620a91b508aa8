package servers

// Module is the path from the folder of a test to the root of the repository.
const Module = "../.."
