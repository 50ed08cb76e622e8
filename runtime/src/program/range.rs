//! The shapes that a program serves.

use serde::{Deserialize, Serialize};

/// Extents of one dimension of an input, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DimRange {
    /// The smallest.
    pub min: usize,
    /// The largest.
    pub max: usize,
}

/// Extents of one input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRange {
    /// Name in the model.
    pub name: String,
    /// Of each dimension; `None`: any shape that the model takes.
    pub dims: Option<Vec<DimRange>>,
}

/// Why a shape is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "input `{name}` is {found:?}, this engine was compiled for {least:?} to {most:?}; compile it again with --min-shapes and --max-shapes around it"
)]
pub struct OutOfRange {
    /// Name of the input.
    pub name: String,
    /// Its extents.
    pub found: Vec<usize>,
    /// Smallest extents.
    pub least: Vec<usize>,
    /// Largest extents.
    pub most: Vec<usize>,
}

impl InputRange {
    /// Whether these extents are served.
    ///
    /// # Errors
    ///
    /// If they are not.
    pub fn check(&self, extents: &[usize]) -> Result<(), OutOfRange> {
        let Some(dims) = &self.dims else { return Ok(()) };
        let inside = dims.len() == extents.len()
            && dims.iter().zip(extents).all(|(dim, n)| (dim.min..=dim.max).contains(n));
        if inside {
            return Ok(());
        }
        Err(OutOfRange {
            name: self.name.clone(),
            found: extents.to_vec(),
            least: dims.iter().map(|dim| dim.min).collect(),
            most: dims.iter().map(|dim| dim.max).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_inside_and_the_message_names_the_range() {
        let dims = vec![DimRange { min: 1, max: 4 }, DimRange { min: 8, max: 8 }];
        let range = InputRange { name: "x".into(), dims: Some(dims) };
        assert!(range.check(&[1, 8]).is_ok() && range.check(&[4, 8]).is_ok());
        let message = range.check(&[5, 8]).unwrap_err().to_string();
        assert!(message.contains("[5, 8]") && message.contains("[1, 8] to [4, 8]"), "{message}");
        assert!(range.check(&[1]).is_err() && range.check(&[1, 7]).is_err());
        assert!(InputRange { name: "x".into(), dims: None }.check(&[3, 3, 3]).is_ok());
    }
}
