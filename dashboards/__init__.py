"""Pages over the store: active profiles and why they are active; reads through `db` only."""
