//! Element types, in one table: name in the text format, width, class and ONNX code.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the bits of an element are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeClass {
    /// Floating point: IEEE, or of 8 or 4 bits (OCP, and the FNUZ variants).
    Float,
    /// Two's complement.
    Signed,
    /// Unsigned binary.
    Unsigned,
    /// One byte, 0 or 1.
    Bool,
}

macro_rules! dtypes {
    ($($ident:ident $name:literal $bits:literal $class:ident $onnx:literal;)+) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[allow(missing_docs, reason = "described by the table row")]
        pub enum DType { $($ident),+ }

        impl DType {
            /// All element types, in table order.
            pub const ALL: &[DType] = &[$(DType::$ident),+];

            /// Spelling in the text formats.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$ident => $name),+ }
            }

            /// Bits that one element takes in a packed tensor.
            pub const fn bits(self) -> usize {
                match self { $(DType::$ident => $bits),+ }
            }

            /// How the bits are read.
            pub const fn class(self) -> DTypeClass {
                match self { $(DType::$ident => DTypeClass::$class),+ }
            }

            /// `TensorProto.DataType` of the ONNX format.
            pub const fn onnx_code(self) -> i32 {
                match self { $(DType::$ident => $onnx),+ }
            }
        }
    };
}

#[rustfmt::skip] // One element type per row.
dtypes! {
    // Type   name      bits  class     ONNX code
    F64       "f64"     64    Float     11;
    F32       "f32"     32    Float     1;
    F16       "f16"     16    Float     10;
    BF16      "bf16"    16    Float     16;
    F8E4M3    "f8e4m3"  8     Float     17;
    F8E5M2    "f8e5m2"  8     Float     19;
    F8E4M3FNUZ "f8e4m3fnuz" 8  Float     18;
    F8E5M2FNUZ "f8e5m2fnuz" 8  Float     20;
    F8E8M0    "f8e8m0"  8     Float     24;
    F4E2M1    "f4e2m1"  4     Float     23;
    I64       "i64"     64    Signed    7;
    I32       "i32"     32    Signed    6;
    I16       "i16"     16    Signed    5;
    I8        "i8"      8     Signed    3;
    I4        "i4"      4     Signed    22;
    I2        "i2"      2     Signed    26;
    U64       "u64"     64    Unsigned  13;
    U32       "u32"     32    Unsigned  12;
    U16       "u16"     16    Unsigned  4;
    U8        "u8"      8     Unsigned  2;
    U4        "u4"      4     Unsigned  21;
    U2        "u2"      2     Unsigned  25;
    Bool      "bool"    8     Bool      9;
}

impl DType {
    /// Bytes that `n_elems` elements take; types of 4 and 2 bits are packed, the first in the lowest bits.
    pub const fn bytes_for(self, n_elems: usize) -> usize {
        (n_elems * self.bits()).div_ceil(8)
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        self.class() == DTypeClass::Float
    }

    /// The type with this ONNX code.
    pub fn from_onnx(code: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.onnx_code() == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No row of the table has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type `{0}`")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<Self, UnknownDType> {
        let found = Self::ALL.iter().copied().find(|dtype| dtype.name() == name);
        found.ok_or_else(|| UnknownDType(name.to_owned()))
    }
}
