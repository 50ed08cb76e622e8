//! Collects the examples of the built-in rules, which `eggine rules show` prints, from the rewriter's
//! filetests: the table of names and texts is generated, so that no example is written down twice.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("tests/filetests/rewrite");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut paths: Vec<_> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    let mut table = String::from("&[\n");
    for path in paths.iter().filter(|path| path.extension().is_some_and(|it| it == "gir")) {
        let name = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        table.push_str(&format!(
            "    ({name:?}, include_str!({:?})),\n",
            path.display().to_string()
        ));
    }
    table.push_str("]\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("rule_examples.rs"), table)?;
    Ok(())
}
