//! What kernels cost, and whether they exist: asked of code generation, remembered here.

use std::collections::BTreeMap;
use std::sync::Mutex;

use eggine_ir::{Graph, NodeKind, Region};

/// Cost and legality of regions, from whoever generates and measures kernels.
pub trait RegionCost: Sync {
    /// Expected time of the region as *one* kernel, in nanoseconds, with its launch. `None`: no kernel
    /// family can do it as one kernel. Must depend on nothing but the region and the state of the
    /// evidence, which does not change during an optimisation.
    fn cost_ns(&self, region: &Region) -> Option<f64>;
}

/// Identity of a graph's computation: operators, attributes, types, constants and their wiring, but
/// neither names nor sources.
pub type Fingerprint = u128;

/// FNV-1a with 128 bits: the regions of one search are far fewer than 2⁶⁴.
struct Fnv(u128);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 =
                (self.0 ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }
}

/// See [`Fingerprint`].
pub fn fingerprint(graph: &Graph) -> Fingerprint {
    use eggine_ir::Attr;
    let mut hash = Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    for node in graph.nodes.values() {
        hash.bytes(&[node.ty.dtype as u8]);
        let extents = node.ty.extents();
        hash.number(extents.len() as u64);
        extents.iter().for_each(|&n| hash.number(n as u64));
        match &node.kind {
            NodeKind::Input { weight, .. } => hash.bytes(&[0, u8::from(*weight)]),
            NodeKind::Const(tensor) => {
                hash.bytes(&[1]);
                match crate::literal::Literal::from_tensor(tensor) {
                    Some(literal) => hash.text(&literal.to_string()),
                    None => hash.bytes(&tensor.bytes),
                }
            }
            NodeKind::Apply(op, attrs, args) => {
                hash.bytes(&[2, *op as u8]);
                for attr in &attrs.0 {
                    match attr {
                        Attr::Int(x) => hash.number(*x as u64),
                        Attr::Ints(xs) => {
                            hash.number(xs.len() as u64);
                            xs.iter().for_each(|&x| hash.number(x as u64));
                        }
                        Attr::Float(bits) => hash.number(*bits),
                        Attr::DType(dtype) => hash.bytes(&[*dtype as u8]),
                        Attr::Word(word) => hash.text(word),
                    }
                }
                hash.number(args.len() as u64);
                args.iter().for_each(|arg| hash.number(u64::from(arg.as_u32())));
            }
        }
    }
    graph.outputs.iter().for_each(|output| hash.number(u64::from(output.as_u32())));
    hash.0
}

/// Costs of regions that were asked for before, shared by all segments of a model.
pub(crate) struct CostMemo<'a> {
    costs: &'a dyn RegionCost,
    known: Mutex<BTreeMap<Fingerprint, Option<f64>>>,
}

impl<'a> CostMemo<'a> {
    pub(crate) fn new(costs: &'a dyn RegionCost) -> Self {
        Self { costs, known: Mutex::new(BTreeMap::new()) }
    }

    /// The cost, and the region's fingerprint.
    pub(crate) fn cost_ns(&self, graph: Graph) -> Option<f64> {
        let key = fingerprint(&graph);
        if let Some(&cost) = self.known.lock().expect("nobody panics with the lock").get(&key) {
            return cost;
        }
        // Two threads may ask for the same region at once; both get the same answer.
        let cost = self.costs.cost_ns(&Region::contiguous(graph)).filter(|cost| cost.is_finite());
        self.known.lock().expect("nobody panics with the lock").insert(key, cost);
        cost
    }

    /// How many different regions have been asked for.
    pub(crate) fn len(&self) -> usize {
        self.known.lock().expect("nobody panics with the lock").len()
    }
}
