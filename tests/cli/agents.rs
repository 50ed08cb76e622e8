//! External agents in a search: the shipped ones take part, bad ones cost nothing but their budget.

use std::path::Path;
use std::process::Command;

use super::{eggine, example, fails, path, succeeds};

fn search(folder: &Path, agent: &str, extra: &[&str]) -> std::process::Output {
    let (model, engine) = (example("adapter.onnx"), folder.join("out.engine"));
    let evidence = folder.join("evidence.sqlite");
    let mut args = vec!["compile", path(&model), "-o", path(&engine), "--quiet", "--json"];
    args.extend(["--budget", "24", "--evidence", path(&evidence), "--agent", agent]);
    args.extend(extra);
    eggine(&args)
}

fn lines(report: &str) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_str(report).unwrap();
    report["external"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap().to_owned())
        .collect()
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped check is named")]
fn shipped_agents_take_part_and_finished_searches_are_repeated() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: 1 check of external agents in a search: there is no python3");
        return;
    }
    let agents = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agents");
    for (file, name) in
        [("random_search.py", "external/random-search"), ("evidence_agent.py", "external/evidence")]
    {
        let folder = tempfile::tempdir().unwrap();
        let command = format!("python3 '{}'", agents.join(file).display());
        // Alone with the pointwise tiler, which has nothing to say about matrix products.
        let report = succeeds(&search(
            folder.path(),
            &command,
            &["--agents", "pointwise-tiler", "--agent-timeout", "60"],
        ));
        let said = lines(&report);
        assert!(said[0].starts_with(name), "{said:?}");
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let records = report["search"]["agents"].as_array().unwrap();
        let record = records.iter().find(|record| record["agent"] == name).unwrap();
        assert!(record["n_judged"].as_u64().unwrap() > 0, "{record}");
        let engine = std::fs::read(folder.path().join("out.engine")).unwrap();
        let again = succeeds(&search(
            folder.path(),
            &command,
            &["--agents", "pointwise-tiler", "--agent-timeout", "60"],
        ));
        let again: serde_json::Value = serde_json::from_str(&again).unwrap();
        assert_eq!(again["n_measured"], 0, "{name}");
        assert!(
            std::fs::read(folder.path().join("out.engine")).unwrap() == engine,
            "{name}: another engine"
        );
    }
}

#[test]
fn bad_agents_cost_the_search_nothing() {
    for (agent, log) in [
        ("/no/such/agent", "cannot be started"),
        (
            "sh -c 'read x; echo \"{\\\"type\\\":\\\"hello\\\",\\\"protocol\\\":1}\"; read x; exit 7'",
            "exit status: 7",
        ),
        (
            "sh -c 'read x; echo \"{\\\"type\\\":\\\"hello\\\",\\\"protocol\\\":1}\"; sleep 60'",
            "did not answer",
        ),
        ("yes", "said nonsense"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let report = succeeds(&search(folder.path(), agent, &["--agent-timeout", "1"]));
        let said = lines(&report);
        assert!(said.iter().any(|line| line.contains(log)), "{agent}: {said:?}");
        assert!(folder.path().join("out.engine").exists());
    }
    let model = example("adapter.onnx");
    fails(
        &eggine(&["compile", path(&model), "-o", "x.engine", "--quiet", "--agent", "true"]),
        &["--budget"],
    );
}
