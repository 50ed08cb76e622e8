//! Schedules: how a region is divided into blocks, threads, tiles and stages. One struct a kernel
//! family; text form `family(key=value, …)`, printed and parsed here and nowhere else.
//!
//! A schedule only says *how*; whether it fits a region is the family's `check`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! schedules {
    ($($(#[$family_doc:meta])* $family:ident $name:literal $strukt:ident { $($(#[$doc:meta])* $field:ident $key:literal,)+ })+) => {
        $(
            $(#[$family_doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub struct $strukt {
                $($(#[$doc])* pub $field: u32,)+
            }
        )+

        /// How a region is computed by one kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub enum Schedule {
            $(#[doc = concat!("See [`", stringify!($strukt), "`].")] $family($strukt),)+
        }

        impl Schedule {
            /// Name of the kernel family, as printed.
            pub fn family(&self) -> &'static str {
                match self { $(Schedule::$family(_) => $name,)+ }
            }
        }

        impl fmt::Display for Schedule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Schedule::$family(it) => {
                        let fields = [$(format!("{}={}", $key, it.$field)),+];
                        write!(f, "{}({})", $name, fields.join(","))
                    })+
                }
            }
        }

        impl FromStr for Schedule {
            type Err = ScheduleParseError;

            fn from_str(text: &str) -> Result<Self, ScheduleParseError> {
                let (family, mut fields) = fields_of(text)?;
                let schedule = match family {
                    $($name => Schedule::$family($strukt { $($field: take(&mut fields, $name, $key)?,)+ }),)+
                    other => return Err(ScheduleParseError::Family { family: other.to_owned() }),
                };
                match fields.first() {
                    Some((key, _)) => Err(ScheduleParseError::UnknownKey { family: family.to_owned(), key: (*key).to_owned() }),
                    None => Ok(schedule),
                }
            }
        }

        #[cfg(test)]
        fn any_schedule() -> impl proptest::strategy::Strategy<Value = Schedule> {
            use proptest::prelude::*;
            prop_oneof![
                $(proptest::collection::vec(any::<u32>(), [$($key),+].len()).prop_map(|values| {
                    let mut values = values.into_iter();
                    Schedule::$family($strukt { $($field: values.next().expect("one per field")),+ })
                }),)+
            ]
        }
    };
}

schedules! {
    /// One thread computes `elems` elements of the output, the whole of each.
    Pointwise "pointwise" PointwiseSchedule {
        /// Threads per block.
        threads "threads",
        /// Output elements per thread, a multiple of `vector`.
        elems "elems",
        /// Neighbouring elements that a thread loads and stores together: 1, 2 or 4.
        vector "vector",
    }

    /// A group of threads computes a row: cooperative reductions, then the row's output elements.
    Row "row" RowSchedule {
        /// Threads that share a row; a power of two.
        threads_per_row "threads_per_row",
        /// Rows per block.
        rows_per_block "rows_per_block",
        /// Neighbouring elements that a thread loads and stores together: 1, 2 or 4.
        vector "vector",
        /// Elements per thread up to which a row stays in registers; longer rows are read again.
        keep "keep",
    }

    /// Tiles of the operands in shared memory, a tile of the result in the registers of each thread.
    Contraction "contraction" ContractionSchedule {
        /// Rows of the result per block.
        tile_m "m",
        /// Columns of the result per block.
        tile_n "n",
        /// Products per step.
        tile_k "k",
        /// Rows of the result per thread.
        thread_m "tm",
        /// Columns of the result per thread.
        thread_n "tn",
        /// Shared buffers per operand: 1, or 2 to load one while the other is used.
        stages "stages",
        /// 1 if the operand that gives the rows is rearranged at compile time.
        pack_lhs "pack_lhs",
        /// 1 if the operand that gives the columns is rearranged at compile time.
        pack_rhs "pack_rhs",
        /// 1 if rows and columns change roles (the transposed product is computed).
        swap "swap",
        /// Widest global access of the loaders and of the epilogue: 1, 2 or 4 elements.
        vector "vector",
    }
}

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleParseError {
    /// Not of the form `family(key=value,…)`.
    #[error("`{text}` is not of the form `family(key=value,…)`")]
    Form {
        /// What was read.
        text: String,
    },
    /// No such family.
    #[error("unknown kernel family `{family}`")]
    Family {
        /// What was read.
        family: String,
    },
    /// A key is missing.
    #[error("a `{family}` schedule needs `{key}`")]
    MissingKey {
        /// The family.
        family: String,
        /// The key.
        key: String,
    },
    /// A key is not one of the family's, or there twice.
    #[error("a `{family}` schedule has no `{key}`, or has it twice")]
    UnknownKey {
        /// The family.
        family: String,
        /// The key.
        key: String,
    },
    /// A value is not a number.
    #[error("`{key}={value}` is not a number")]
    Value {
        /// The key.
        key: String,
        /// What was read.
        value: String,
    },
}

type Fields<'a> = Vec<(&'a str, &'a str)>;

fn fields_of(text: &str) -> Result<(&str, Fields<'_>), ScheduleParseError> {
    let form = || ScheduleParseError::Form { text: text.to_owned() };
    let (family, rest) = text.trim().split_once('(').ok_or_else(form)?;
    let inside = rest.strip_suffix(')').ok_or_else(form)?;
    let pairs = inside.split(',').map(|field| field.trim().split_once('=').ok_or_else(form));
    Ok((family, pairs.collect::<Result<_, _>>()?))
}

fn take(fields: &mut Fields<'_>, family: &str, key: &str) -> Result<u32, ScheduleParseError> {
    let at = fields.iter().position(|(k, _)| *k == key);
    let at = at.ok_or_else(|| ScheduleParseError::MissingKey {
        family: family.to_owned(),
        key: key.to_owned(),
    })?;
    let (_, value) = fields.remove(at);
    value
        .parse()
        .map_err(|_| ScheduleParseError::Value { key: key.to_owned(), value: value.to_owned() })
}

impl From<Schedule> for String {
    fn from(schedule: Schedule) -> String {
        schedule.to_string()
    }
}

impl TryFrom<String> for Schedule {
    type Error = ScheduleParseError;

    fn try_from(text: String) -> Result<Self, ScheduleParseError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    proptest::proptest! {
        #[test]
        fn parsing_a_printed_schedule_gives_it_back(schedule in any_schedule()) {
            proptest::prop_assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        }
    }

    #[test]
    fn one_printed_form() {
        let schedule = Schedule::Pointwise(PointwiseSchedule { threads: 256, elems: 4, vector: 4 });
        insta::assert_snapshot!(schedule, @"pointwise(threads=256,elems=4,vector=4)");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &str| text.parse::<Schedule>().unwrap_err().to_string();
        insta::assert_snapshot!(error("pointwise"), @"`pointwise` is not of the form `family(key=value,…)`");
        insta::assert_snapshot!(error("scan(threads=1)"), @"unknown kernel family `scan`");
        insta::assert_snapshot!(error("pointwise(threads=1,elems=1)"), @"a `pointwise` schedule needs `vector`");
        insta::assert_snapshot!(error("pointwise(threads=1,elems=1,vector=x)"), @"`vector=x` is not a number");
        insta::assert_snapshot!(error("pointwise(threads=1,elems=1,vector=1,z=1)"), @"a `pointwise` schedule has no `z`, or has it twice");
    }
}
