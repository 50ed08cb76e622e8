//! Compiling for hardware that is not here: schedules ranked by a chip's static model, machine code for
//! several targets.

use super::{compile, eggine, fails, path, succeeds};

#[test]
fn a_chip_that_is_not_here_is_predicted_for_and_every_time_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--device", "model:h200", "--budget", "60"];
    let (engine, output) = compile("dit_transformer", folder.path(), &arguments);
    let report = succeeds(&output);
    assert!(report.contains("60 schedules ranked by the static model of h200"), "{report}");
    assert!(report.contains("predicted, nothing measured"), "{report}");
    let shown = succeeds(&eggine(&["inspect", path(&engine)]));
    assert!(shown.contains("predicted for h200: nothing was measured"), "{shown}");
    // Where there is an assembler the leading few are predicted from what it makes, and it is said.
    match report.contains("none was predicted from machine code") {
        true => assert!(!shown.contains("from machine code"), "{shown}"),
        false => {
            assert!(report.contains("were predicted from machine code by "), "{report}");
            assert!(shown.contains("predicted from machine code by "), "{shown}");
        }
    }
    let times: Vec<&str> = shown.lines().filter(|line| line.contains(" ms ")).collect();
    assert!(!times.is_empty() && times.iter().all(|line| line.contains("predicted for h200")));
    let explained = succeeds(&eggine(&["explain", path(&engine)]));
    assert!(explained.contains("ms predicted for h200, not measured"), "{explained}");
    // What was ranked for a GPU was verified on the cpu device, and runs there.
    let case = super::example("dit_transformer.case0.npz");
    let compared = eggine(&["compare", path(&engine), "--case", path(&case)]);
    assert!(succeeds(&compared).contains("agrees"));
    // The same again is the same engine.
    let bytes = std::fs::read(&engine).unwrap();
    let (again, output) = compile("dit_transformer", folder.path(), &arguments);
    succeeds(&output);
    assert!(std::fs::read(again).unwrap() == bytes, "same input, same bytes");
}

#[test]
fn several_targets_give_machine_code_where_there_is_an_assembler() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, output) = compile("dit_transformer", folder.path(), &["--target", "sm_90a,sm_80"]);
    let report = succeeds(&output);
    let shown = succeeds(&eggine(&["inspect", path(&engine)]));
    assert!(shown.contains("target   sm_80,"), "the text is for the oldest: {shown}");
    if report.contains("machine code: none") {
        assert!(report.contains("the driver"), "{report}");
        assert!(!shown.contains("code     "), "{shown}");
    } else {
        assert!(report.contains("machine code: sm_90a, sm_80 by "), "{report}");
        for target in ["sm_90a", "sm_80"] {
            assert!(shown.contains(&format!("code     {target}, ")), "{shown}");
        }
    }
    let case = super::example("dit_transformer.case0.npz");
    succeeds(&eggine(&["compare", path(&engine), "--case", path(&case)]));
}

#[test]
fn unknown_chips_and_targets_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_, output) = compile("dit_transformer", folder.path(), &["--device", "model:h300"]);
    fails_to_parse(&output, &["h300", "h200", "rtx5090"]);
    let (_, output) = compile("dit_transformer", folder.path(), &["--target", "sm_80,sm_1"]);
    fails(&output, &["sm_1", "sm_90a"]);
}

/// Arguments that clap refuses are told in its form.
#[track_caller]
fn fails_to_parse(output: &std::process::Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
}
