//! Every operator of models as a region of its own: `ops MODEL.onnx[:input=1,3,8,8]…`.
//!
//! Lowers each different one under the first schedule of each family, runs it on the cpu device in
//! checking mode if it is small, and prints whatever goes wrong.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::device::Ready;
use eggine_codegen_ptx::{CPU_DEVICE, first_choices, lower};
use eggine_cpu::Options;
use eggine_ir::onnx::{ImportOptions, import};
use eggine_ir::{Graph, Node, NodeKind, Region, Value};

/// The region of one node: its operands are inputs, small constants stay.
fn region_of(graph: &Graph, value: Value) -> Option<Region> {
    let NodeKind::Apply(op, attrs, args) = &graph.nodes[value].kind else { return None };
    let mut region = Graph::new("op");
    let mut inputs = Vec::new();
    let mut seen: BTreeMap<Value, Value> = BTreeMap::new();
    for &arg in args {
        if seen.contains_key(&arg) {
            inputs.push(seen[&arg]);
            continue;
        }
        let ty = graph.ty(arg).clone();
        let input = match &graph.nodes[arg].kind {
            NodeKind::Const(tensor) if tensor.n_elems() <= 16 => region.constant(tensor.clone()),
            NodeKind::Const(_) => region.weight(ty),
            _ => region.nodes.push(Node {
                kind: NodeKind::Input { name: String::new(), weight: false },
                ty,
                sources: Vec::new(),
            }),
        };
        seen.insert(arg, input);
        inputs.push(input);
    }
    let result = region.apply(*op, attrs.clone(), &inputs).unwrap();
    region.outputs.push(result);
    Some(Region::contiguous(region).canonical().0)
}

fn main() {
    let mut known = BTreeSet::new();
    for arg in std::env::args().skip(1) {
        let mut parts = arg.split(':');
        let path = parts.next().unwrap();
        let mut options = ImportOptions::default();
        for shape in parts {
            let (name, extents) = shape.split_once('=').unwrap();
            options
                .shapes
                .insert(name.to_owned(), extents.split(',').map(|n| n.parse().unwrap()).collect());
        }
        let graph = match import(path, &options) {
            Ok(imported) => imported.graph,
            Err(err) => {
                println!("{path}: {err}");
                continue;
            }
        };
        let (mut n_regions, mut n_run) = (0, 0);
        for value in graph.nodes.keys() {
            let Some(region) = region_of(&graph, value) else { continue };
            if !known.insert(region.to_string()) {
                continue;
            }
            n_regions += 1;
            let choices = first_choices(&region, &CPU_DEVICE);
            if choices.is_empty() {
                println!("{path}: no family for\n{region}");
            }
            let inputs = common::inputs_of(&region);
            let mut want = None;
            for (_, schedule, prediction) in choices {
                let lowered = match lower(&region, &schedule) {
                    Ok(lowered) => lowered,
                    Err(err) => {
                        println!("{path}: {schedule}: {err}\n{region}");
                        continue;
                    }
                };
                let ready = match Ready::new(lowered, &region, &inputs) {
                    Ok(ready) => ready,
                    Err(err) => {
                        println!(
                            "{path}: {schedule}: {}\n{region}",
                            err.lines().next().unwrap_or_default()
                        );
                        continue;
                    }
                };
                if prediction.ns > 2e7 {
                    continue;
                }
                n_run += 1;
                let options = Options { checking: prediction.ns < 2e6, ..Options::default() };
                if let Err(err) = ready.launch(&options) {
                    println!("{path}: {schedule}: {err}\n{region}");
                    continue;
                }
                let want = want.get_or_insert_with(|| region.oracle(&inputs));
                if let Some(difference) = common::compare(want, &ready.outputs(&region)) {
                    println!("{path}: {schedule}: {difference}\n{region}");
                }
            }
        }
        println!("{path}: {n_regions} different operators, {n_run} kernels run");
    }
}
