//! Edges: what goes over the path to them, and what happens when it ends.
