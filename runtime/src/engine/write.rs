//! Files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Removes the file unless it was kept.
struct Temporary {
    path: PathBuf,
    kept: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            // Nothing more can be done about a file that cannot be removed.
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Lets `fill` write a new file beside `path`, and moves it to `path` once it is safely on disk.
///
/// # Errors
///
/// Whatever creating, writing, syncing or renaming reports. Then a file that was at `path` is as it
/// was, and nothing else is left.
pub fn write_atomically(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
    };
    if path.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    let (file, mut temporary) = create_beside(folder, &name.to_string_lossy())?;
    let mut buffered = io::BufWriter::with_capacity(1 << 20, file);
    fill(&mut buffered)?;
    let file = buffered.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary.path, path)?;
    temporary.kept = true;
    Ok(())
}

fn create_beside(folder: &Path, name: &str) -> io::Result<(File, Temporary)> {
    let mut attempt = 0;
    loop {
        let path = folder.join(format!(".{name}.{}.{attempt}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, Temporary { path, kept: false })),
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => {
                attempt += 1
            }
            Err(err) => return Err(err),
        }
    }
}
