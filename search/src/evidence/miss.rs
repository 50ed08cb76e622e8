//! Why a lookup found nothing: the nearest row, and the fields in which it differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rusqlite::{OptionalExtension, params};
use serde::Serialize;

use super::error::EvidenceError;
use super::row::{Conditions, Key};
use super::store::{COLUMNS, Evidence, row_at};

/// A precondition, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Field {
    /// The region.
    Region,
    /// The schedule.
    Schedule,
    /// The PTX.
    Ptx,
    /// The device.
    Device,
    /// What verified and timed it.
    Method,
    /// Alignment.
    Layout,
    /// Driver and assembler.
    Toolchain,
    /// State of the caches.
    Cache,
}

impl Field {
    /// All fields of a key, in its order.
    pub const ALL: &[Field] = &[
        Field::Region,
        Field::Schedule,
        Field::Ptx,
        Field::Device,
        Field::Method,
        Field::Layout,
        Field::Toolchain,
        Field::Cache,
    ];

    /// The field of a key.
    pub fn of(self, key: &Key) -> &str {
        match self {
            Field::Region => &key.region,
            Field::Schedule => &key.schedule,
            Field::Ptx => &key.ptx,
            Field::Device => &key.device,
            Field::Method => &key.method,
            Field::Layout => &key.conditions.layout,
            Field::Toolchain => &key.conditions.toolchain,
            Field::Cache => &key.conditions.cache,
        }
    }

    /// The value for people: of a hash, the beginning.
    fn short(self, value: &str) -> &str {
        match self {
            Field::Region | Field::Ptx => value.get(..12).unwrap_or(value),
            _ => value,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Region => "region",
            Field::Schedule => "schedule",
            Field::Ptx => "PTX",
            Field::Device => "device",
            Field::Method => "method",
            Field::Layout => "layout",
            Field::Toolchain => "toolchain",
            Field::Cache => "cache state",
        })
    }
}

/// A field with other values there and here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Which.
    pub field: Field,
    /// In the row that is known.
    pub there: String,
    /// In the key that was looked up.
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (there, here) = (self.field.short(&self.there), self.field.short(&self.here));
        write!(f, "measured with another {} `{there}`; here `{here}`", self.field)
    }
}

/// What is known about a key that has no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "miss", rename_all = "kebab-case")]
pub enum Miss {
    /// There is a row: no miss.
    Known {
        /// Its address.
        hash: String,
    },
    /// The nearest row differs in these fields.
    Differs {
        /// Address of that row.
        nearest: String,
        /// At least one field, in the order of [`Field::ALL`].
        fields: Vec<Difference>,
    },
    /// The file has no rows at all.
    Empty,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Miss::Known { hash } => write!(f, "row {} is used", hash.get(..12).unwrap_or(hash)),
            Miss::Empty => f.write_str("no evidence at all"),
            Miss::Differs { nearest, fields } => {
                let nearest = nearest.get(..12).unwrap_or(nearest);
                write!(f, "the nearest row {nearest} was ")?;
                for (idx, difference) in fields.iter().enumerate() {
                    write!(f, "{}{difference}", if idx > 0 { "; and " } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// The differences of two keys.
pub fn differences(there: &Key, here: &Key) -> Vec<Difference> {
    (Field::ALL.iter())
        .filter(|field| field.of(there) != field.of(here))
        .map(|&field| Difference {
            field,
            there: field.of(there).to_owned(),
            here: field.of(here).to_owned(),
        })
        .collect()
}

/// How many regions are known under other conditions only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissedRegions {
    /// Regions.
    pub n_regions: usize,
    /// The difference that they share.
    pub difference: Difference,
}

impl fmt::Display for MissedRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regions = if self.n_regions == 1 { "region" } else { "regions" };
        write!(f, "{} {regions} {}", self.n_regions, self.difference)
    }
}

/// Counts the regions of a run that had to be measured although they are known under other conditions.
#[derive(Debug, Default)]
pub struct MissTally {
    seen: BTreeSet<String>,
    counts: BTreeMap<Difference, usize>,
}

impl MissTally {
    /// Looks at a region once: before its first measurement under the conditions of `key`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn note(&mut self, evidence: &Evidence, key: &Key) -> Result<(), EvidenceError> {
        if self.seen.insert(key.region.clone())
            && let Some(difference) = evidence.nearest_difference(key)?
        {
            *self.counts.entry(difference).or_default() += 1;
        }
        Ok(())
    }

    /// The counts, most regions first.
    pub fn missed(&self) -> Vec<MissedRegions> {
        let mut missed: Vec<_> = (self.counts.iter())
            .map(|(difference, &n_regions)| MissedRegions {
                n_regions,
                difference: difference.clone(),
            })
            .collect();
        missed.sort_by_key(|missed| std::cmp::Reverse(missed.n_regions));
        missed
    }

    /// The counts for people, one line each.
    pub fn lines(&self) -> Vec<String> {
        self.missed().iter().map(ToString::to_string).collect()
    }
}

impl Evidence {
    /// Why a key has no row: the row with the most equal fields, and of several the first by address.
    ///
    /// Reads the whole table: for people, not for a search.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the row is damaged.
    pub fn explain_miss(&self, key: &Key) -> Result<Miss, EvidenceError> {
        let Conditions { layout, toolchain, cache } = &key.conditions;
        // Of equally many, a row of the same region says more than one on the same device.
        let sql = format!(
            "SELECT {COLUMNS} FROM measurement
             ORDER BY (region = ?1) + (schedule = ?2) + (ptx = ?3) + (device = ?4) + (method = ?5)
                      + (layout = ?6) + (toolchain = ?7) + (cache = ?8) DESC,
                      (region = ?1) DESC, (schedule = ?2) DESC, hash LIMIT 1"
        );
        let values = params![
            key.region,
            key.schedule,
            key.ptx,
            key.device,
            key.method,
            layout,
            toolchain,
            cache
        ];
        let nearest = (self.connection())
            .query_row(&sql, values, row_at)
            .optional()
            .map_err(|err| self.fail(err))?;
        let Some(nearest) = nearest else { return Ok(Miss::Empty) };
        let fields = differences(&nearest.key, key);
        let hash = nearest.key.hash();
        Ok(match fields.is_empty() {
            true => Miss::Known { hash },
            false => Miss::Differs { nearest: hash, fields },
        })
    }

    /// For regions that have no row under the conditions of a run: under which others they have, grouped
    /// by the nearest difference, most regions first. A region that nobody measured is not counted.
    ///
    /// One line of the result for people: ``37 regions measured with another device `cpu/…/2`; here
    /// `cpu/…/1` ``.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn explain_missed_regions<'a>(
        &self,
        regions: impl IntoIterator<Item = &'a str>,
        device: &str,
        method: &str,
        conditions: &Conditions,
    ) -> Result<Vec<MissedRegions>, EvidenceError> {
        let mut tally = MissTally::default();
        for region in regions {
            let key = Key {
                region: region.to_owned(),
                schedule: String::new(),
                ptx: String::new(),
                device: device.to_owned(),
                method: method.to_owned(),
                conditions: conditions.clone(),
            };
            tally.note(self, &key)?;
        }
        Ok(tally.missed())
    }

    /// In which field the nearest conditions under which a region is known differ from those of `here`;
    /// `None` if none do, or nobody measured the region. The first field stands for the rest: a group for
    /// each combination would be no summary.
    fn nearest_difference(&self, here: &Key) -> Result<Option<Difference>, EvidenceError> {
        let places = (self.connection())
            .prepare_cached(
                "SELECT DISTINCT device, method, layout, toolchain, cache FROM measurement
                 WHERE region = ?1 ORDER BY device, method, layout, toolchain, cache",
            )
            .and_then(|mut statement| {
                let places = statement.query_map([&here.region], |row| {
                    Ok(Key {
                        device: row.get(0)?,
                        method: row.get(1)?,
                        conditions: Conditions {
                            layout: row.get(2)?,
                            toolchain: row.get(3)?,
                            cache: row.get(4)?,
                        },
                        ..here.clone()
                    })
                })?;
                places.collect::<Result<Vec<Key>, _>>()
            });
        let places = places.map_err(|err| self.fail(err))?;
        let nearest = places.iter().map(|there| differences(there, here)).min_by_key(Vec::len);
        Ok(nearest.and_then(|fields| fields.into_iter().next()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use crate::evidence::testing::row;

    /// Each precondition is named if it is the one that differs.
    #[test]
    fn a_miss_names_the_field_that_differs() {
        let evidence = Evidence::in_memory().unwrap();
        let base = row("r", "a", 1);
        assert_eq!(evidence.explain_miss(&base.key).unwrap(), Miss::Empty);
        evidence.insert(&base).unwrap();
        evidence.insert(&row("far", "b", 2)).unwrap();
        let hash = base.key.hash();
        assert_eq!(evidence.explain_miss(&base.key).unwrap(), Miss::Known { hash: hash.clone() });
        for &field in Field::ALL {
            let mut key = base.key.clone();
            let value = match field {
                Field::Region => &mut key.region,
                Field::Schedule => &mut key.schedule,
                Field::Ptx => &mut key.ptx,
                Field::Device => &mut key.device,
                Field::Method => &mut key.method,
                Field::Layout => &mut key.conditions.layout,
                Field::Toolchain => &mut key.conditions.toolchain,
                Field::Cache => &mut key.conditions.cache,
            };
            let there = std::mem::replace(value, "here".to_owned());
            let miss = evidence.explain_miss(&key).unwrap();
            let fields = vec![Difference { field, there, here: "here".into() }];
            assert_eq!(miss, Miss::Differs { nearest: hash.clone(), fields });
            let text = miss.to_string();
            assert!(text.contains(&field.to_string()) && text.contains("`here`"), "{text}");
        }
    }

    #[test]
    fn missed_regions_are_summed_up_by_what_differs() {
        let evidence = Evidence::in_memory().unwrap();
        for (region, device, method) in [
            ("a", "cpu 2", "verify-1"),
            ("b", "cpu 2", "verify-1"),
            ("c", "cpu 1", "verify-0"),
            ("d", "cpu 1", "verify-1"),
        ] {
            let mut row = row(region, "s", 1);
            (row.key.device, row.key.method) = (device.into(), method.into());
            evidence.insert(&row).unwrap();
        }
        let missed = evidence
            .explain_missed_regions(
                ["a", "b", "b", "c", "nobody"],
                "cpu 1",
                "verify-1",
                &Conditions::default(),
            )
            .unwrap();
        let lines: Vec<String> = missed.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "2 regions measured with another device `cpu 2`; here `cpu 1`",
                "1 region measured with another method `verify-0`; here `verify-1`",
            ]
        );
        let hit = ["d"];
        let none =
            evidence.explain_missed_regions(hit, "cpu 1", "verify-1", &Conditions::default());
        assert_eq!(none.unwrap(), []);
    }
}
