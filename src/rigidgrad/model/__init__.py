"""Robot models: an immutable tree of bodies and joints, and the places it can come from."""
