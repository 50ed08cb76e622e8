//! Whether a file is whole: what the database engine says of its pages, and whether each row is what
//! its addresses say.

use serde::Serialize;

use super::error::EvidenceError;
use super::job::record_at;
use super::store::{COLUMNS, Evidence, engine_row_at, row_at};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Rows of all tables that were read.
    pub n_rows: u64,
    /// What is wrong, each with the row's address.
    pub faults: Vec<String>,
}

type Fault = Option<String>;

impl Evidence {
    /// Reads every row of every table.
    ///
    /// # Errors
    ///
    /// If a table cannot be read at all. A bad row is a fault, not an error.
    pub fn check(&self) -> Result<Checked, EvidenceError> {
        let mut checked = Checked::default();
        self.check_pages(&mut checked)?;
        let measurement = format!("SELECT {COLUMNS}, hash, content FROM measurement ORDER BY hash");
        self.check_table(&mut checked, &measurement, "measurement", "hash", |row| {
            let (hash, content): (String, String) = (row.get("hash")?, row.get("content")?);
            let row = row_at(row)?;
            Ok(same("preconditions", &hash, &row.key.hash())
                .or_else(|| same("contents", &content, &row.content())))
        })?;
        self.check_table(
            &mut checked,
            "SELECT samples_ns, incumbent_ns, decision, ratio, low, high, hash, content FROM engine ORDER BY hash",
            "engine",
            "hash",
            |row| Ok(same("contents", &row.get::<_, String>("content")?, &engine_row_at(row)?.content())),
        )?;
        self.check_table(
            &mut checked,
            "SELECT generations, finished, hash FROM job ORDER BY hash",
            "job",
            "hash",
            |row| record_at(row).map(|_| None),
        )?;
        for row in self.all_counterexamples()? {
            checked.n_rows += 1;
            let content = row.content();
            if self
                .connection()
                .query_row(
                    "SELECT count(*) FROM counterexample WHERE content = ?1",
                    [&content],
                    |row| row.get::<_, i64>(0),
                )
                .map_err(|err| self.fail(err))?
                == 0
            {
                checked.faults.push(format!(
                    "counterexample for `{}`: its contents are not what its address says",
                    row.kind
                ));
            }
        }
        for row in self.all_quarantined()? {
            checked.n_rows += 1;
            let hash = eggine_runtime::engine::hash_text(&row.ptx);
            let fault = same("PTX", &row.ptx_hash, &hash);
            checked.faults.extend(fault.map(|it| format!("quarantine {}: {it}", row.content())));
        }
        Ok(checked)
    }

    fn check_pages(&self, checked: &mut Checked) -> Result<(), EvidenceError> {
        let mut statement =
            (self.connection()).prepare("PRAGMA integrity_check").map_err(|err| self.fail(err))?;
        let found: Result<Vec<String>, _> =
            statement.query_map([], |row| row.get(0)).and_then(Iterator::collect);
        let found = found.map_err(|err| self.fail(err))?;
        checked.faults.extend(found.into_iter().filter(|line| line != "ok"));
        Ok(())
    }

    fn check_table(
        &self,
        checked: &mut Checked,
        sql: &str,
        table: &str,
        address: &str,
        check: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<Fault>,
    ) -> Result<(), EvidenceError> {
        let mut statement = self.connection().prepare(sql).map_err(|err| self.fail(err))?;
        let mut rows = statement.query([]).map_err(|err| self.fail(err))?;
        while let Some(row) = rows.next().map_err(|err| self.fail(err))? {
            checked.n_rows += 1;
            let fault = check(row).unwrap_or_else(|err| Some(err.to_string()));
            if let Some(fault) = fault {
                let hash: String = row.get(address).unwrap_or_else(|err| err.to_string());
                checked.faults.push(format!("{table} {hash}: {fault}"));
            }
        }
        Ok(())
    }
}

fn same(what: &str, stored: &str, found: &str) -> Fault {
    (stored != found).then(|| format!("its {what} are not what its address says"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::testing::row;
    use crate::evidence::{CounterexampleRow, EngineRow, JobRecord, QuarantineRow};

    fn full() -> Evidence {
        let evidence = Evidence::in_memory().unwrap();
        evidence.insert(&row("r", "a", 1)).unwrap();
        evidence.insert(&row("r", "b", 2)).unwrap();
        let engine = EngineRow {
            samples_ns: vec![1, 2],
            incumbent_ns: vec![],
            decision: "faster".into(),
            ratio: 0.5,
            low: 0.4,
            high: 0.6,
        };
        evidence.insert_engine("e", &engine).unwrap();
        let job = JobRecord { generations: vec![8, 4], finished: false };
        evidence.set_job("j", &job).unwrap();
        let counterexample = CounterexampleRow {
            kind: "row".into(),
            region: "r".into(),
            entry: "{}".into(),
            failure: "far".into(),
        };
        evidence.insert_counterexample(&counterexample).unwrap();
        let ptx = ".version 9.0".to_owned();
        let quarantined = QuarantineRow {
            region: "r".into(),
            schedule: "s".into(),
            ptx_hash: eggine_runtime::engine::hash_text(&ptx),
            device: "cpu".into(),
            method: "1".into(),
            reason: "hangs".into(),
            entry: "{}".into(),
            ptx,
        };
        evidence.insert_quarantined(&quarantined).unwrap();
        evidence
    }

    #[test]
    fn a_whole_file_is_whole() {
        assert_eq!(full().check().unwrap(), Checked { n_rows: 6, faults: vec![] });
    }

    /// The check can fail: each kind of damage is found, once.
    #[test]
    fn every_kind_of_damage_is_found() {
        for damage in [
            "UPDATE measurement SET samples_ns = '3 1' WHERE schedule = 'a'",
            "UPDATE measurement SET samples_ns = '3 1 x' WHERE schedule = 'a'",
            "UPDATE measurement SET schedule = 'c' WHERE schedule = 'a'",
            "UPDATE measurement SET verdict = x'00' WHERE schedule = 'a'",
            "UPDATE engine SET ratio = 0.4",
            "UPDATE engine SET samples_ns = '1 2 '",
            "UPDATE job SET generations = '8 4-'",
            "UPDATE counterexample SET entry = '[]'",
            "UPDATE quarantine SET text = ''",
        ] {
            let evidence = full();
            evidence.connection().execute(damage, []).unwrap();
            let faults = evidence.check().unwrap().faults;
            assert_eq!(faults.len(), 1, "{damage}: {faults:?}");
        }
    }
}
