//! Placeholder, replaced by its first commit.
