//! Entry functions of the fuzz targets. The workspace's own smoke test and mutation loop include the same file.

pub mod entries;
