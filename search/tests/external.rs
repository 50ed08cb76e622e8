//! External agents against scripted child processes: honest, crashing, hanging, flooding, talking
//! nonsense. Whatever they do, the search goes on, and the log says why.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stderr, reason = "a skipped check is named")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use eggine_codegen_ptx::{check, first_schedule, neighbours};
use eggine_ir::{Region, Schedule};
use eggine_search::external::{
    EvidenceView, External, ExternalOptions, Fault, RegionView, ScheduleSource, TuneView,
};

struct Subject {
    region: Region,
    hash: String,
    best: Schedule,
}

fn subject() -> Subject {
    let text = "graph @g(v0: f32[64,64]) {\n    v1 = relu v0\n    return v1\n}\n";
    let region = Region::contiguous(eggine_ir::graph::parse(text).unwrap());
    let best = first_schedule(&region).unwrap();
    Subject { hash: region.hash_hex(), best, region }
}

impl Subject {
    fn view(&self) -> TuneView<'_> {
        let region = RegionView {
            region: 7,
            hash: &self.hash,
            graph: &self.region,
            n_launches: 3,
            best: self.best,
            best_ns: Some(1000.0),
            neighbours: neighbours(&self.region, &self.best),
        };
        TuneView { regions: vec![region], evidence: Vec::new(), n_left: Some(100) }
    }

    fn near(&self, nth: usize) -> Schedule {
        neighbours(&self.region, &self.best)[nth].1
    }
}

fn quick() -> ExternalOptions {
    ExternalOptions {
        start_timeout: Duration::from_secs(20),
        reply_timeout: Duration::from_secs(30),
        max_line_bytes: 4096,
        budget: 40,
        ..ExternalOptions::default()
    }
}

const HELLO: &str = r#"{"type":"hello","protocol":1,"name":"scripted"}"#;

/// A shell script that greets and then answers each question with `answer`.
fn scripted(folder: &Path, answer: &str) -> String {
    let file = folder.join("agent.sh");
    let script = format!(
        "read hello\necho '{HELLO}'\nwhile read line; do\ncase \"$line\" in\n*'\"type\":\"ask\"'*)\n{answer}\n;;\nesac\ndone\n"
    );
    std::fs::write(&file, script).unwrap();
    format!("sh '{}'", file.display())
}

fn say(schedule: &Schedule, hash: &str, priority: f64) -> String {
    format!(
        r#"echo '{{"type":"schedule","region":"{hash}","schedule":"{schedule}","priority":{priority}}}'"#
    )
}

const DONE: &str = r#"echo '{"type":"done"}'"#;

#[test]
fn an_honest_agent_proposes_legal_schedules_once() {
    let (folder, subject) = (tempfile::tempdir().unwrap(), subject());
    let (a, b) = (subject.near(0), subject.near(1));
    let answer = format!(
        "{}\n{}\necho '{{\"type\":\"priority\",\"region\":\"{}\",\"weight\":2.5}}'\n{DONE}",
        say(&a, &subject.hash, 1.0),
        say(&b, &subject.hash, 2.0),
        subject.hash
    );
    let mut agent = External::start(&scripted(folder.path(), &answer), quick());
    assert_eq!(agent.name(), "external/scripted");
    let found = agent.propose(&subject.view(), 8);
    let schedules: Vec<Schedule> = found.iter().map(|it| it.schedule).collect();
    assert_eq!(schedules, [b, a], "by priority");
    assert!(found.iter().all(|it| it.region == 7 && check(&subject.region, &it.schedule).is_ok()));
    assert_eq!(agent.weights().get(&subject.hash), Some(&2.5));
    assert_eq!((agent.faults(), agent.budget_left()), (&[][..], 37));
    // The same again is refused, costs, and ends nothing.
    assert_eq!(agent.propose(&subject.view(), 8), []);
    assert_eq!((agent.faults().len(), agent.budget_left(), agent.is_running()), (2, 34, true));
    assert!(agent.faults()[0].to_string().contains("proposed before"));
}

#[test]
fn agents_are_told_regions_and_evidence() {
    let (folder, subject) = (tempfile::tempdir().unwrap(), subject());
    let heard = folder.path().join("heard");
    let script = format!(
        "read hello; echo '{HELLO}'; while read line; do echo \"$line\" >> '{}'; case \"$line\" in *'\"type\":\"ask\"'*) {DONE};; esac; done",
        heard.display()
    );
    let file = folder.path().join("listener.sh");
    std::fs::write(&file, script).unwrap();
    let mut agent = External::start(&format!("sh '{}'", file.display()), quick());
    let mut view = subject.view();
    agent.propose(&view, 4);
    view.evidence.push(EvidenceView {
        region: subject.hash.clone(),
        schedule: subject.near(0).to_string(),
        verdict: "accepted".into(),
        median_ns: Some(900.0),
        agent: "tiler".into(),
    });
    view.regions[0].best = subject.near(0);
    agent.propose(&view, 4);
    assert_eq!(agent.faults(), []);
    let heard = std::fs::read_to_string(&heard).unwrap();
    let messages: Vec<serde_json::Value> =
        heard.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = messages.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["region", "ask", "region", "evidence", "ask"]);
    assert_eq!(messages[0]["region"], subject.hash.as_str());
    assert!(messages[0]["text"].as_str().unwrap().contains("relu"));
    assert_eq!(messages[0]["flops"], 64 * 64);
    assert_eq!(messages[0]["bytes"], 2 * 4 * 64 * 64);
    assert!(!messages[0]["near"].as_array().unwrap().is_empty());
    assert!(messages[2]["text"].is_null(), "the text is sent once");
    assert_eq!(messages[3]["median_ns"], 900.0);
    assert_eq!(messages[4]["want"], "schedules");
}

#[test]
fn whatever_an_agent_does_wrong_costs_it_its_budget_and_nothing_else() {
    let subject = subject();
    let illegal = subject.best.to_string().replace("threads=", "threads=9999");
    #[rustfmt::skip] // One misdeed per row.
    let misdeeds: &[(&str, String, &str, bool)] = &[
        // name            what it does when asked                                     what the log says           ends it
        ("crash",          "echo oops >&2; exit 3".into(),                             "exit status: 3); it wrote: oops", true),
        ("hang",           "sleep 600".into(),                                         "did not answer",            true),
        ("half a line",    r#"printf '{"type":"done"'; sleep 600"#.into(),             "did not answer",            true),
        ("flood of lines", r#"while true; do echo '{"type":"priority"}'; done"#.into(), "spent its budget",         true),
        ("long line",      "head -c 100000 /dev/zero | tr '\\0' 'a'; sleep 600".into(), "more than 4096 bytes",     true),
        ("no JSON",        format!("echo 'I think that'; {DONE}"),                     "said nonsense",             false),
        ("odd JSON",       format!("echo '[1,2]'; echo '{{\"type\":\"joke\"}}'; {DONE}"), "unknown variant `joke`", false),
        ("odd field",      format!("echo '{{\"type\":\"done\",\"rm\":1}}'; {DONE}"),   "unknown field",             false),
        ("unknown region", format!("{}; {DONE}", say(&subject.best, "abc", 1.0)),      "no region `abc`",           false),
        ("no schedule",    format!("echo '{{\"type\":\"schedule\",\"region\":\"{}\",\"schedule\":\"fast()\"}}'; {DONE}", subject.hash), "is not of the form",        false),
        ("illegal",        format!("echo '{{\"type\":\"schedule\",\"region\":\"{}\",\"schedule\":\"{illegal}\"}}'; {DONE}", subject.hash), "nonsense", false),
        ("rule too late",  format!("echo '{{\"type\":\"rule\",\"row\":\"x\"}}'; {DONE}"), "before the search",      false),
        ("weight",         format!("echo '{{\"type\":\"priority\",\"region\":\"{}\",\"weight\":-1}}'; {DONE}", subject.hash), "outside of 0 to 1000", false),
        ("deep JSON",      format!("head -c 3000 /dev/zero | tr '\\0' '['; echo; {DONE}"), "said nonsense",         false),
    ];
    for (name, answer, log, ends) in misdeeds {
        let folder = tempfile::tempdir().unwrap();
        // Only those that never answer are given up soon: machines may be slow.
        let waits = log.contains("did not answer");
        let reply_timeout = Duration::from_millis(if waits { 700 } else { 30_000 });
        let options = ExternalOptions { reply_timeout, ..quick() };
        let mut agent = External::start(&scripted(folder.path(), answer), options);
        assert!(agent.is_running(), "{name}: {:?}", agent.faults());
        let started = Instant::now();
        assert_eq!(agent.propose(&subject.view(), 4), [], "{name}");
        assert!(started.elapsed() < Duration::from_secs(40), "{name} held up the search");
        let faults: Vec<String> = agent.faults().iter().map(Fault::to_string).collect();
        assert!(faults.iter().any(|it| it.contains(log)), "{name}: {faults:?}");
        assert_eq!(agent.is_running(), !ends, "{name}: {faults:?}");
        assert!(agent.budget_left() < 40, "{name} paid nothing");
        if *ends {
            assert_eq!(agent.budget_left(), 0, "{name}");
            assert_eq!(agent.propose(&subject.view(), 4), [], "{name} is not asked again");
            assert_eq!(agent.faults().len(), faults.len(), "{name}");
        }
    }
}

#[test]
fn agents_that_do_not_start_or_greet_propose_nothing() {
    let subject = subject();
    #[rustfmt::skip] // One agent per row.
    let agents: &[(&str, &str)] = &[
        ("/no/such/program",                                              "cannot be started"),
        ("",                                                              "the command is empty"),
        ("sh -c 'exit 0'",                                                "ended (exit status: 0)"),
        ("sh -c 'echo hello; sleep 60'",                                  "said nonsense"),
        (r#"sh -c 'echo "{\"type\":\"done\"}"; sleep 60'"#,                "not a hello"),
        (r#"sh -c 'echo "{\"type\":\"hello\",\"protocol\":99}"; sleep 60'"#, "speaks protocol 99"),
    ];
    for (command, log) in agents {
        let mut agent = External::start(command, quick());
        assert!(!agent.is_running(), "{command}");
        assert!(agent.faults()[0].to_string().contains(log), "{command}: {:?}", agent.faults());
        assert_eq!(agent.propose(&subject.view(), 4), []);
        assert!(agent.rules().is_empty());
    }
}

#[test]
fn a_budget_is_spent_line_by_line() {
    let (folder, subject) = (tempfile::tempdir().unwrap(), subject());
    let answer = format!("echo x; echo y; echo z; {DONE}");
    let options = ExternalOptions { budget: 7, ..quick() };
    let mut agent = External::start(&scripted(folder.path(), &answer), options);
    for left in [4, 1, 0] {
        agent.propose(&subject.view(), 4);
        assert_eq!(agent.budget_left(), left);
    }
    assert!(agent.faults().last().unwrap().to_string().contains("budget of 7 lines"));
    assert!(!agent.is_running());
}

#[test]
fn rules_of_agents_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        "agent-neg | x:S* y:T* | (mul (neg ?x) ?y) | (neg (mul ?x ?y)) | Exact",
        "agent-sign | x:S* y:S* | (sub ?x ?y) | (sub ?y ?x) | Real",
        "agent-odd | x:S* | (negg ?x) | ?x | Exact",
    ];
    let lines: Vec<String> =
        rows.iter().map(|row| format!("echo '{{\"type\":\"rule\",\"row\":\"{row}\"}}'")).collect();
    let answer = format!("{}\n{DONE}", lines.join("\n"));
    let options = ExternalOptions { reply_timeout: Duration::from_secs(20), ..quick() };
    let mut agent = External::start(&scripted(folder.path(), &answer), options);
    let rules = agent.rules();
    let names: Vec<&str> = rules.rules().iter().map(|rule| rule.name).collect();
    assert_eq!(names, ["agent-neg"], "{:?}", agent.faults());
    let faults: Vec<String> = agent.faults().iter().map(Fault::to_string).collect();
    assert_eq!(faults.len(), 2);
    assert!(faults[0].contains("agent-sign") && faults[1].contains("negg"), "{faults:?}");
    assert!(agent.is_running());
}

/// Every message and field of the protocol is in its document.
#[test]
fn the_document_names_every_message_and_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = std::fs::read_to_string(root.join("docs/external-agents.md")).unwrap();
    let source = std::fs::read_to_string(root.join("search/src/external/protocol.rs")).unwrap();
    let mut n_words = 0;
    for line in source.lines().map(str::trim) {
        let word = line.split([' ', ':', '{', '(', '<']).next().unwrap_or_default();
        let is_field = line.contains(": ") && line.ends_with(',') && !line.starts_with("//");
        let is_variant = (line.ends_with(" {") || line.ends_with("{},"))
            && word.starts_with(|c: char| c.is_ascii_uppercase());
        if (is_field || is_variant) && !word.is_empty() {
            n_words += 1;
            let word = word.to_lowercase();
            assert!(document.contains(&format!("`{word}`")), "`{word}` is not in the document");
        }
    }
    assert!(n_words > 30, "{n_words} words of the protocol were found");
}

fn python() -> bool {
    std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_ok_and(|it| it.status.success())
}

/// The agents that the repository ships: each proposes legal schedules, and the one that reads evidence
/// goes where the evidence points.
#[test]
fn shipped_agents_propose_legal_schedules() {
    if !python() {
        eprintln!("skipped: 1 check of shipped external agents: there is no python3");
        return;
    }
    let agents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents");
    let files: Vec<PathBuf> =
        agents.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let files: Vec<&PathBuf> =
        files.iter().filter(|file| file.extension().is_some_and(|it| it == "py")).collect();
    assert_eq!(files.len(), 2);
    let subject = subject();
    for file in files {
        let options = ExternalOptions { reply_timeout: Duration::from_secs(20), ..quick() };
        let command = format!("python3 '{}'", file.display());
        let run = || {
            let mut agent = External::start(&command, options.clone());
            let first = agent.propose(&subject.view(), 4);
            // The last was the fastest: the search goes on from there.
            let mut view = subject.view();
            let best = first.last().unwrap().schedule;
            (view.regions[0].best, view.regions[0].best_ns) = (best, Some(700.0));
            view.regions[0].neighbours = neighbours(&subject.region, &best);
            view.evidence = (first.iter().enumerate())
                .map(|(nth, proposed)| EvidenceView {
                    region: subject.hash.clone(),
                    schedule: proposed.schedule.to_string(),
                    verdict: "accepted".into(),
                    median_ns: Some(1000.0 - 100.0 * nth as f64),
                    agent: agent.name().to_owned(),
                })
                .collect();
            let second = agent.propose(&view, 4);
            assert!(agent.is_running(), "{command}: {:?}", agent.faults());
            (first, second)
        };
        let (first, second) = run();
        assert!(!first.is_empty() && !second.is_empty(), "{command} proposes nothing");
        assert_eq!(run(), (first, second), "{command}: same seed, same proposals");
    }
}
