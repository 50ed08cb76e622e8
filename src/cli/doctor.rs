//! `eggine doctor`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use eggine::codegen::assemble::Assembler;
use eggine::runtime::Device;
use eggine::runtime::device::cuda::cuda_report;
use eggine::search::evidence::Evidence;
use eggine::{CpuDevice, CpuOptions};
use serde::Serialize;

use super::CliError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Evidence database to check [default: the one that `compile` uses].
    #[arg(long, value_name = "FILE")]
    evidence: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    works: bool,
    found: String,
    advice: Option<&'static str>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CliError> {
    let mut findings = vec![cpu()];
    findings.extend(cuda());
    findings.extend([
        assembler(),
        linker(),
        evidence(args.evidence.clone().or_else(super::default_evidence).as_deref()),
    ]);
    if args.json {
        super::print_json(&findings)?;
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &findings {
        let mark = if finding.works { "ok" } else { "--" };
        println!("{mark} {:<10} {}", finding.what, finding.found);
        if let Some(advice) = finding.advice {
            println!("   {:<10} {advice}", "");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn cpu() -> Finding {
    let info = CpuDevice::new(CpuOptions::default()).info();
    let portable = info.name.contains("portable");
    let advice = portable.then_some("no AVX2 was found: kernels run, slowly");
    Finding { what: "cpu device", works: true, found: info.name, advice }
}

/// The driver, and each device.
fn cuda() -> Vec<Finding> {
    let report = match cuda_report() {
        Ok(report) => report,
        Err(err) => {
            return vec![Finding {
                what: "cuda",
                works: false,
                found: err.to_string(),
                advice: Some("optional: engines run on the cpu device without it"),
            }];
        }
    };
    let found = format!(
        "driver of CUDA {} ({} or later is needed), {} device{}",
        report.driver_version,
        report.needed_version,
        report.devices.len(),
        if report.devices.len() == 1 { "" } else { "s" }
    );
    let mut findings = vec![Finding { what: "cuda", works: true, found, advice: None }];
    for device in report.devices {
        let works = device.is_ok();
        let found = device.unwrap_or_else(|err| err.to_string());
        findings.push(Finding { what: "", works, found, advice: None });
    }
    findings
}

fn assembler() -> Finding {
    match Assembler::find(None, Path::new(".")) {
        Ok(assembler) => {
            Finding { what: "assembler", works: true, found: assembler.to_string(), advice: None }
        }
        Err(err) => Finding {
            what: "assembler",
            works: false,
            found: format!("{err}: PTX is emitted and run on the cpu device, but not assembled"),
            advice: Some(
                "optional: `cargo xtask tools` in a checkout, or put ptxas 13.0 on the path",
            ),
        },
    }
}

/// nvJitLink, which is not needed where there is another assembler.
fn linker() -> Finding {
    let all = Assembler::all(Path::new("."));
    let found = all.iter().find(|it| it.name() == "nvJitLink");
    Finding {
        what: "nvJitLink",
        works: found.is_some(),
        found: found.map_or_else(
            || "not found (libnvJitLink.so.13 or .12)".to_owned(),
            |linker| linker.to_string(),
        ),
        advice: found
            .is_none()
            .then_some("optional: it assembles in this process where nvPTXCompiler is not found"),
    }
}

fn evidence(path: Option<&Path>) -> Finding {
    let what = "evidence";
    let Some(path) = path else {
        return Finding {
            what,
            works: false,
            found: "no home folder for it".into(),
            advice: Some("name a file with --evidence"),
        };
    };
    if !path.exists() {
        let found = format!("{} (not there yet; a search will create it)", path.display());
        return Finding { what, works: true, found, advice: None };
    }
    match Evidence::open(path).and_then(|evidence| evidence.verdicts()) {
        Ok(verdicts) => {
            let counts: Vec<String> =
                verdicts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            let counts = if counts.is_empty() { "empty".to_owned() } else { counts.join(", ") };
            Finding {
                what,
                works: true,
                found: format!("{}: {counts}", path.display()),
                advice: None,
            }
        }
        Err(err) => Finding { what, works: false, found: err.to_string(), advice: None },
    }
}
