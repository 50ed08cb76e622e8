//! The tutorial's commands run exactly as written, and answer what it says. Lines may be left out of its
//! answers, but those that are there come in this order; times and ratios are not compared.

use std::path::Path;
use std::process::Command;

/// A fenced block of the document.
enum Block {
    /// A script: it has to succeed.
    Script(String),
    /// A command, and lines of its answer.
    Command(String, Vec<String>),
}

fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        if !line.starts_with("```") {
            continue;
        }
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match line {
            "```sh" => blocks.push(Block::Script(body.join("\n"))),
            "```console" => {
                for line in body {
                    match (line.strip_prefix("$ "), blocks.last_mut()) {
                        (Some(command), _) => {
                            blocks.push(Block::Command(command.to_owned(), Vec::new()));
                        }
                        (None, Some(Block::Command(_, answer))) => answer.push(line.to_owned()),
                        (None, _) => panic!("an answer without a command: {line}"),
                    }
                }
            }
            _ => {}
        }
    }
    blocks
}

/// A line with every decimal fraction replaced: those are times and ratios.
fn without_times(line: &str) -> String {
    if !line.contains("time of ") {
        return line.trim_end().to_owned();
    }
    let is_fraction = |word: &&str| {
        word.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>().is_ok()
            && word.contains('.')
    };
    let words: Vec<&str> = line
        .split(' ')
        .map(|word| if is_fraction(&word) && !word.contains("engine") { "#" } else { word })
        .collect();
    words.join(" ")
}

/// Runs all blocks in one shell; what is wrong with their answers.
fn check(document: &str, folder: &Path) -> Vec<String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let blocks = blocks(document);
    let mut script = String::from("exec 2>&1\n");
    for (nth, block) in blocks.iter().enumerate() {
        let (Block::Script(text) | Block::Command(text, _)) = block;
        script.push_str(&format!("echo '@@ {nth}'\n{text}\n"));
        if matches!(block, Block::Script(_)) {
            script.push_str("[ $? = 0 ] || echo '@@ failed'\n");
        }
    }
    std::os::unix::fs::symlink(repository.join("examples"), folder.join("examples")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_eggine"));
    let path = std::env::join_paths(
        std::iter::once(program.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("PATH", path.unwrap())
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut wrong = Vec::new();
    for (nth, block) in blocks.iter().enumerate() {
        let begin = format!("@@ {nth}\n");
        let Some((_, rest)) = output.split_once(&begin) else {
            wrong.push(format!("block {nth} did not run"));
            continue;
        };
        let rest = rest.split_once(&format!("@@ {}\n", nth + 1)).map_or(rest, |(rest, _)| rest);
        if rest.contains("@@ failed") {
            wrong.push(format!("block {nth} failed: {rest}"));
        }
        let Block::Command(command, answer) = block else { continue };
        let mut found = rest.lines().map(without_times);
        for line in answer {
            let line = without_times(line);
            if !found.any(|found| found == line) {
                wrong
                    .push(format!("`{command}` does not answer `{line}` (in this order):\n{rest}"));
                break;
            }
        }
    }
    wrong
}

#[test]
fn the_commands_of_the_tutorial_run_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let document = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorial-rules.md"),
    )
    .unwrap();
    let n_commands = blocks(&document).len();
    assert!(n_commands >= 14, "{n_commands} blocks and commands");
    let wrong = check(&document, folder.path());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The harness itself must be able to say no.
#[test]
fn a_wrong_tutorial_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let document = "
```sh
false
```
```console
$ eggine rules show neg-neg
neg-neg (table identities)
  left   (abs ?x)
$ printf 'b\\na\\n'
a
b
$ echo 'time of x ÷ time of y: 0.5 (95 % interval 0.4 to 0.6)'
time of x ÷ time of y: 0.7 (95 % interval 0.6 to 0.8)
```
";
    let wrong = check(document, folder.path());
    assert_eq!(wrong.len(), 3, "{wrong:#?}");
}

// The model of the tutorial, written message by message: `onnx.proto` of ONNX 1.x.

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 128 {
        out.push(n as u8 & 127 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(field: u64, n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3, &mut out);
    varint(n, &mut out);
    out
}

fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(field << 3 | 2, &mut out);
    varint(content.len() as u64, &mut out);
    out.extend(content);
    out
}

fn text(field: u64, content: &str) -> Vec<u8> {
    bytes(field, content.as_bytes())
}

fn node(op: &str, inputs: [&str; 2], output: &str) -> Vec<u8> {
    let inputs = inputs.iter().filter(|name| !name.is_empty()).flat_map(|name| text(1, name));
    let named = [text(2, output), text(3, output), text(4, op)].concat();
    inputs.chain(named).collect()
}

fn value(name: &str, extents: &[u64]) -> Vec<u8> {
    let shape: Vec<u8> = extents.iter().flat_map(|&n| bytes(1, &number(1, n))).collect();
    let tensor = [number(1, 1), bytes(2, &shape)].concat();
    [text(1, name), bytes(2, &bytes(1, &tensor))].concat()
}

/// Two layers, `x W + (x A) B + bias` each, with a relu between them.
fn adapter_model() -> Vec<u8> {
    let mut random = eggine::search::SplitMix(1);
    let mut weight = |name: String, extents: &[u64]| {
        let n_elems: u64 = extents.iter().product();
        let raw: Vec<u8> = (0..n_elems)
            .flat_map(|_| {
                let unit = (random.next_u64() >> 40) as f64 / f64::from(1 << 24);
                (((unit - 0.5) / 8.0) as f32).to_le_bytes()
            })
            .collect();
        let dims = extents.iter().flat_map(|&n| number(1, n));
        let rest = [number(2, 1), text(8, &name), bytes(9, &raw)].concat();
        dims.chain(rest).collect::<Vec<u8>>()
    };
    let (mut nodes, mut weights) = (Vec::new(), Vec::new());
    let mut x = "x".to_owned();
    for layer in 0..2 {
        let at = |part: &str| format!("layer{layer}.{part}");
        weights.push(weight(at("weight"), &[128, 128]));
        weights.push(weight(at("down"), &[128, 8]));
        weights.push(weight(at("up"), &[8, 128]));
        weights.push(weight(at("bias"), &[128]));
        nodes.push(node("MatMul", [&x, &at("weight")], &at("dense")));
        nodes.push(node("MatMul", [&x, &at("down")], &at("low")));
        nodes.push(node("MatMul", [&at("low"), &at("up")], &at("adapter")));
        nodes.push(node("Add", [&at("dense"), &at("adapter")], &at("sum")));
        nodes.push(node("Add", [&at("sum"), &at("bias")], &at("out")));
        x = at("out");
        if layer == 0 {
            nodes.push(node("Relu", [&x, ""], "layer0.relu"));
            x = "layer0.relu".to_owned();
        }
    }
    nodes.push(node("Identity", [&x, ""], "y"));
    let mut graph: Vec<u8> = nodes.iter().flat_map(|node| bytes(1, node)).collect();
    graph.extend(text(2, "adapter"));
    graph.extend(weights.iter().flat_map(|weight| bytes(5, weight)));
    graph.extend(bytes(11, &value("x", &[64, 128])));
    graph.extend(bytes(12, &value("y", &[64, 128])));
    [number(1, 8), bytes(7, &graph), bytes(8, &number(2, 17))].concat()
}

/// To write it anew: let this test write `adapter_model()` to the file once.
#[test]
fn the_tutorials_model_is_what_its_writer_writes() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/models/adapter.onnx");
    assert!(std::fs::read(file).unwrap() == adapter_model(), "adapter.onnx is another model");
}
