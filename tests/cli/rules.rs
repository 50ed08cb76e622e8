//! `eggine rules` and `compile --rules`: what is listed, shown, refused, used, traced and explained.

use std::path::Path;

use super::{compile, eggine, fails, path, succeeds};

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    path(&file).to_owned()
}

#[test]
fn rules_are_listed_and_shown() {
    let list = succeeds(&eggine(&["rules", "list", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let rows = list.as_array().unwrap();
    assert!(rows.len() > 80, "{} rules", rows.len());
    for row in rows {
        let name = row["name"].as_str().unwrap();
        assert!(["Exact", "Real"].contains(&row["soundness"].as_str().unwrap()), "{name}");
        assert!(!row["left"].as_str().unwrap().is_empty() && row["table"].is_string(), "{name}");
    }
    let text = succeeds(&eggine(&["rules", "list"]));
    assert_eq!(text.lines().count(), rows.len() + 1, "one line a rule, and one for their number");
    let shown = succeeds(&eggine(&["rules", "show", "mul-factor"]));
    for part in ["(mul (add ?x ?y) ?z)", "any shape", "Real", "; expect:", "graph @before"] {
        assert!(shown.contains(part), "`{part}` is missing from: {shown}");
    }
    let computed = succeeds(&eggine(&["rules", "show", "transpose-transpose"]));
    assert!(computed.contains("computed from the others"), "{computed}");
    fails(&eggine(&["rules", "show", "no-such-rule"]), &["no-such-rule", "rules list"]);
}

#[test]
fn files_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let good = write(
        folder.path(),
        "good.rules",
        "neg-mul | x:S* y:T* | (mul (neg ?x) ?y) | (neg (mul ?x ?y)) | Exact\n",
    );
    assert!(succeeds(&eggine(&["rules", "check", &good])).contains("ok neg-mul"));
    let bad =
        write(folder.path(), "bad.rules", "add-zero | x:S* c:~S=0.0 | (add ?x ?c) | ?x | Exact\n");
    let refused = eggine(&["rules", "check", &bad]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    for part in
        ["`add-zero` is false", "?x = -0.0:f32[]", "left   is 0.0:f32[]", "right  is -0.0:f32[]"]
    {
        assert!(text.contains(part), "`{part}` is missing from: {text}");
    }
    let odd = write(folder.path(), "odd.rules", "odd | x:S* | (negg ?x) | ?x | Exact\n");
    let unread = eggine(&["rules", "check", &odd]);
    assert_eq!(unread.status.code(), Some(2));
    let text = String::from_utf8_lossy(&unread.stderr).into_owned();
    for part in ["unknown operator `negg`", "did you mean `neg`?", "odd.rules:1:", "error: "] {
        assert!(text.contains(part), "`{part}` is missing from: {text}");
    }
    fails(&eggine(&["rules", "check", "missing.rules"]), &["missing.rules"]);
}

#[test]
fn untrue_rules_stop_a_compilation_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let bad = write(
        folder.path(),
        "bad.rules",
        "wrong-sign | x:S* y:S* | (sub ?x ?y) | (sub ?y ?x) | Real\n",
    );
    let (engine, output) = compile("resnet50", folder.path(), &["--rules", &bad, "--fast-math"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!engine.exists());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("wrong-sign") && stderr.contains("left   is"), "{stderr}");
}

#[test]
fn rules_of_a_user_are_used_traced_and_limited() {
    let folder = tempfile::tempdir().unwrap();
    // Two exact rules that there is something to say about in a residual network, and a real one.
    let rules = write(
        folder.path(),
        "mine.rules",
        "relu-max   | x:S* | (relu ?x)             | (max ?x 0.0:f32[])    | Real\n\
         add-swap   | x:S* y:S* | (relu (add ?x ?y)) | (relu (add ?y ?x))  | Exact\n",
    );
    let run = |extra: &[&str]| {
        let mut args = vec!["--rules", rules.as_str(), "--trace-rules"];
        args.extend(extra);
        let (engine, output) = compile("resnet50", folder.path(), &args);
        succeeds(&output);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let trace: Vec<String> = stderr
            .lines()
            .filter(|line| line.starts_with("trace: rule "))
            .map(str::to_owned)
            .collect();
        (engine, stderr, trace)
    };
    let (engine, stderr, all) = run(&[]);
    assert!(
        stderr.contains("not used without --fast-math") && stderr.contains("relu-max"),
        "{stderr}"
    );
    assert!(all.len() >= 2 && all.iter().all(|line| line.contains("add-swap")), "{all:?}");
    assert!(
        all.iter().any(|line| line.contains("Relu") || line.contains("relu")),
        "sources are named: {all:?}"
    );
    assert!(succeeds(&eggine(&["explain", path(&engine)])).contains("add-swap"));
    let (_, _, one) = run(&["--rule-fuel", "1"]);
    assert_eq!(one[..], all[..1], "the first application is the same");
    let (_, _, none) = run(&["--rule-fuel", "0"]);
    assert_eq!(none.len(), 0);
}
