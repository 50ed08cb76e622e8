//! What a run did, with repeats counted: as long as the model is, whatever the number of its iterations.
//!
//! Events are in the order in which they came first. The same steps give the same trace.

use std::collections::BTreeMap;

/// What happened in a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Nodes that ran as an engine.
    Stage {
        /// Path of the graph; empty for the main one.
        graph: String,
        /// How many nodes.
        n_nodes: usize,
        /// Launches of its engine.
        n_launches: usize,
    },
    /// A node that the host computed or decided.
    Host {
        /// Path of the node.
        node: String,
        /// Its operator.
        op: String,
        /// Why it is not part of an engine, the first time.
        reason: String,
    },
}

/// An event, and how often it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// What.
    pub event: Event,
    /// How often, at least once.
    pub n_times: u64,
}

/// Events of a run, each once. Two host steps of one node are the same event, whatever the reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    all: Vec<Repeated>,
    places: BTreeMap<Event, usize>,
}

impl Trace {
    pub(super) fn push(&mut self, event: Event) {
        let key = match &event {
            Event::Stage { .. } => event.clone(),
            Event::Host { node, op, .. } => {
                Event::Host { node: node.clone(), op: op.clone(), reason: String::new() }
            }
        };
        match self.places.get(&key) {
            Some(&at) => self.all[at].n_times += 1,
            None => {
                self.places.insert(key, self.all.len());
                self.all.push(Repeated { event, n_times: 1 });
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.places.clear();
    }

    /// Events in the order in which they came first.
    pub fn iter(&self) -> std::slice::Iter<'_, Repeated> {
        self.all.iter()
    }

    /// Number of different events.
    pub fn n_events(&self) -> usize {
        self.all.len()
    }

    /// Launches of all engines.
    pub fn n_launches(&self) -> u64 {
        let of = |it: &Repeated| match it.event {
            Event::Stage { n_launches, .. } => n_launches as u64 * it.n_times,
            Event::Host { .. } => 0,
        };
        self.all.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_order_is_of_the_first() {
        let stage = |n_launches| Event::Stage { graph: "loop/body".into(), n_nodes: 2, n_launches };
        let host = |reason: &str| Event::Host {
            node: "n".into(),
            op: "NonZero".into(),
            reason: reason.into(),
        };
        let mut trace = Trace::default();
        for nth in 0..100_000 {
            trace.push(stage(3));
            trace.push(host(&format!("of length {nth}")));
        }
        trace.push(stage(4));
        assert_eq!(trace.n_events(), 3);
        assert_eq!(trace.n_launches(), 300_004);
        let all: Vec<Repeated> = trace.iter().cloned().collect();
        assert_eq!(all[0], Repeated { event: stage(3), n_times: 100_000 });
        assert_eq!(all[1], Repeated { event: host("of length 0"), n_times: 100_000 });
        trace.clear();
        assert_eq!(trace, Trace::default());
    }
}
