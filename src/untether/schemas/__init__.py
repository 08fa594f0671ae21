"""The frames of each engine, as tolerant structs: unknown names and wrong types lose as little as they can."""
