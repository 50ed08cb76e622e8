//! A job's own rules: who applies them, and what they add to the identity of a search.

use std::collections::BTreeMap;
use std::sync::Arc;

use eggine_rewrite::agent::Agent;
use eggine_rewrite::rule_file::UserAgent;
use eggine_rewrite::{Cover, RuleError, Soundness, agents, rule_file};

use crate::external::{ExternalAgent, ExternalOptions};
use crate::job::{Budget, Job};

/// The agents of a job with rules of its own; `None`: the built-in ones.
///
/// The user's agent comes first: where both find an equality, it is credited to who asked for it.
pub(crate) fn agents(
    job: &Job,
    soundness: Soundness,
) -> Result<Option<Vec<Arc<dyn Agent>>>, RuleError> {
    if job.rules.is_empty() {
        return Ok(None);
    }
    let user: Arc<dyn Agent> = Arc::new(UserAgent::new(&job.rules, soundness)?);
    Ok(Some(std::iter::once(user).chain(agents::built_in(soundness)?).collect()))
}

/// The external agents of a search, started, and the job with the rules that they proposed: what is true
/// of them is used as the user's own rules are, and decides with them which job this is.
pub(crate) fn with_external(job: &Job) -> (Vec<Arc<ExternalAgent>>, Job) {
    let mut job = job.clone();
    let mut agents = Vec::new();
    if job.budget != Budget::First {
        for command in &job.external {
            let options = ExternalOptions {
                seed: job.seed,
                reply_timeout: job.external_timeout,
                ..ExternalOptions::default()
            };
            let agent = ExternalAgent::start(command, options);
            if let Err(err) = job.rules.extend(agent.rules()) {
                tracing::warn!(command, %err, "rules of an external agent are not used");
            }
            agents.push(Arc::new(agent));
        }
    }
    (agents, job)
}

/// What rules do to an engine, as options that are written into it and into the job's hash: the hash of
/// the rows (not of the file, whose comments change nothing) and the fuel.
pub(crate) fn options(job: &Job) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    if !job.rules.is_empty() {
        let hash = blake3::hash(job.rules.to_string().as_bytes()).to_hex().to_string();
        options.insert("rules".to_owned(), hash);
        if let Some(fuel) = job.rule_fuel {
            options.insert("rule_fuel".to_owned(), fuel.0.to_string());
        }
    }
    options
}

/// Where the job's rules were applied, in the order in which fuel is counted.
pub(crate) fn firings(job: &Job, cover: &Cover) -> Vec<String> {
    if job.rules.is_empty() {
        return Vec::new();
    }
    rule_file::firings(&cover.derivation).iter().map(ToString::to_string).collect()
}
