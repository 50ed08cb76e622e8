//! Control flow on the host: branches, loops, scans, calls of functions of the model.

use std::collections::BTreeMap;
use std::rc::Rc;

use eggine_ir::onnx::part::{Model, attribute};
use eggine_ir::onnx::proto::{GraphProto, NodeProto};
use eggine_ir::{DType, Tensor};

use super::observe::Iteration;
use super::value::HostValue;
use super::walk::{Frame, Place, RunError, Session, Slot};

/// Loops of more iterations than this do not end, as far as a program is concerned.
const MAX_TRIPS: i64 = 1 << 20;

impl Session<'_> {
    fn operand(
        &self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
        index: usize,
    ) -> Result<Option<HostValue>, RunError> {
        match node.input.get(index).filter(|name| !name.is_empty()) {
            Some(name) => self.result(model, place, frame, name).map(Some),
            None => Ok(None),
        }
    }

    /// A number that decides.
    fn scalar(
        &self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
        index: usize,
    ) -> Result<Option<i64>, RunError> {
        let Some(value) = self.operand(model, place, frame, node, index)? else { return Ok(None) };
        let number =
            value.tensor().filter(|tensor| tensor.n_elems() == 1 && !tensor.dtype.is_float());
        match number {
            Some(tensor) => Ok(tensor.to_i64().first().copied()),
            None => Err(RunError::Control {
                node: place.path_of(node),
                reason: format!("operand {index} is {value}, expected one number or boolean"),
            }),
        }
    }

    /// `If`.
    pub(super) fn branch(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
    ) -> Result<Vec<HostValue>, RunError> {
        let condition = self.scalar(model, place, frame, node, 0)?.unwrap_or(0) != 0;
        self.decided(place, node, condition);
        let which = if condition { "then" } else { "else" };
        let graph = subgraph(place, node, &format!("{which}_branch"))?;
        let path = format!("{}/{which}", place.path_of(node));
        let graphs: Vec<&GraphProto> = place.graphs.iter().copied().chain([graph]).collect();
        let inside = Frame { parent: Some(frame), slots: BTreeMap::new() };
        self.walk(model, Place { graphs: &graphs, path: &path }, inside)
    }

    /// One iteration of a body.
    fn iteration(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        (node, body, nth): (&NodeProto, &GraphProto, u64),
        values: Vec<HostValue>,
    ) -> Result<Vec<HostValue>, RunError> {
        let names = body.input.iter().map(|info| info.name.clone().unwrap_or_default());
        let slots = names.zip(values).map(|(name, value)| (name, Slot { value, known: false }));
        let inside = Frame { parent: Some(frame), slots: slots.collect() };
        let loop_path = place.path_of(node);
        let path = format!("{loop_path}/body");
        let graphs: Vec<&GraphProto> = place.graphs.iter().copied().chain([body]).collect();
        self.iterations.push(Iteration { node: loop_path, nth });
        let results = self.walk(model, Place { graphs: &graphs, path: &path }, inside);
        self.iterations.pop();
        results
    }

    /// `Loop`.
    pub(super) fn repeat(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
    ) -> Result<Vec<HostValue>, RunError> {
        let wrong = |reason: String| RunError::Control { node: place.path_of(node), reason };
        let trips = self.scalar(model, place, frame, node, 0)?;
        let mut go_on = self.scalar(model, place, frame, node, 1)?.unwrap_or(1) != 0;
        let body = subgraph(place, node, "body")?;
        let mut state = Vec::new();
        for index in 2..node.input.len() {
            let value = self.operand(model, place, frame, node, index)?;
            state.push(value.ok_or_else(|| wrong(format!("operand {index} is missing")))?);
        }
        let n_states = state.len();
        if body.input.len() != n_states + 2 || body.output.len() < n_states + 1 {
            let (inputs, outputs) = (body.input.len(), body.output.len());
            return Err(wrong(format!(
                "its body has {inputs} inputs and {outputs} outputs for {n_states} states"
            )));
        }
        let mut scans: Vec<Vec<Tensor>> = vec![Vec::new(); body.output.len() - n_states - 1];
        let mut trip = 0;
        while trips.is_none_or(|trips| trip < trips) && go_on {
            if trip == MAX_TRIPS {
                return Err(wrong(format!("its loop did not end after {MAX_TRIPS} iterations")));
            }
            let condition = Tensor::from_i64(DType::Bool, &[], &[1]);
            let mut values = vec![Tensor::i64(&[], &[trip]).into(), condition.into()];
            values.append(&mut state);
            let at = (node, body, trip.unsigned_abs());
            let mut results = self.iteration(model, place, frame, at, values)?.into_iter();
            let condition = results.next();
            let condition = condition.as_ref().and_then(HostValue::tensor);
            let condition = condition.filter(|it| it.n_elems() == 1 && !it.dtype.is_float());
            let condition = condition.ok_or_else(|| wrong("its condition is no boolean".into()))?;
            go_on = condition.to_i64().first() != Some(&0);
            self.decided(place, node, go_on);
            state = results.by_ref().take(n_states).collect();
            collect(&mut scans, results).map_err(wrong)?;
            trip += 1;
        }
        for scan in scans {
            state.push(stack(&scan, 0).map_err(wrong)?.into());
        }
        Ok(state)
    }

    /// `Scan` of version 9 or later: a step of the body for each slice of the operands.
    pub(super) fn scan(
        &mut self,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
    ) -> Result<Vec<HostValue>, RunError> {
        let wrong = |reason: String| RunError::Control { node: place.path_of(node), reason };
        if model.description().model.opset < 9 {
            return Err(wrong("a `Scan` of opset 8 is not walked on the host".into()));
        }
        let body = subgraph(place, node, "body")?;
        let n_scanned = attribute(node, "num_scan_inputs").and_then(|attr| attr.i);
        let n_scanned = n_scanned.and_then(|n| usize::try_from(n).ok());
        let n_scanned = n_scanned.filter(|&n| n > 0 && n <= node.input.len());
        let n_scanned = n_scanned
            .ok_or_else(|| wrong("its `num_scan_inputs` is no number of inputs".into()))?;
        let n_states = node.input.len() - n_scanned;
        if body.input.len() != node.input.len() || body.output.len() < n_states {
            let (inputs, outputs) = (body.input.len(), body.output.len());
            return Err(wrong(format!(
                "its body has {inputs} inputs and {outputs} outputs for {n_states} states and \
                 {n_scanned} scanned operands"
            )));
        }
        let n_scans = body.output.len() - n_states;
        let numbers = |name: &str, n: usize| -> Result<Vec<i64>, RunError> {
            let list = attribute(node, name).map_or_else(|| vec![0; n], |attr| attr.ints.clone());
            match list.len() == n {
                true => Ok(list),
                false => Err(wrong(format!("its `{name}` has {} numbers for {n}", list.len()))),
            }
        };
        let in_backwards = numbers("scan_input_directions", n_scanned)?;
        let in_axes = numbers("scan_input_axes", n_scanned)?;
        let out_backwards = numbers("scan_output_directions", n_scans)?;
        let out_axes = numbers("scan_output_axes", n_scans)?;
        let mut state = Vec::new();
        let mut scanned = Vec::new();
        for index in 0..node.input.len() {
            let value = self.operand(model, place, frame, node, index)?;
            let value = value.ok_or_else(|| wrong(format!("operand {index} is missing")))?;
            match (index.checked_sub(n_states), value) {
                (None, value) => state.push(value),
                (Some(nth), HostValue::Tensor(tensor)) => {
                    let at = axis(in_axes[nth], tensor.extents.len()).map_err(wrong)?;
                    scanned.push((tensor, at, in_backwards[nth] != 0));
                }
                (Some(_), value) => {
                    return Err(wrong(format!("it scans {value}, expected a tensor")));
                }
            }
        }
        let trips = scanned[0].0.extents[scanned[0].1];
        if let Some((other, at, _)) = scanned.iter().find(|(it, at, _)| it.extents[*at] != trips) {
            let found = other.extents[*at];
            return Err(wrong(format!("it scans {trips} slices and {found}")));
        }
        let mut scans: Vec<Vec<Tensor>> = vec![Vec::new(); n_scans];
        for trip in 0..trips {
            let mut values = std::mem::take(&mut state);
            for (tensor, at, backwards) in &scanned {
                let index = if *backwards { trips - 1 - trip } else { trip };
                values.push(slice(tensor, *at, index).map_err(wrong)?.into());
            }
            let at = (node, body, trip as u64);
            let mut results = self.iteration(model, place, frame, at, values)?.into_iter();
            state = results.by_ref().take(n_states).collect();
            collect(&mut scans, results).map_err(wrong)?;
        }
        for (nth, mut slices) in scans.into_iter().enumerate() {
            if out_backwards[nth] != 0 {
                slices.reverse();
            }
            let rank = slices.first().map_or(1, |it| it.extents.len() + 1);
            let at = axis(out_axes[nth], rank).map_err(wrong)?;
            state.push(stack(&slices, at).map_err(wrong)?.into());
        }
        Ok(state)
    }

    /// A call of a function that the model defines: its body is a graph of its own, which sees only its
    /// operands.
    pub(super) fn call(
        &mut self,
        function: &Model,
        model: &Model,
        place: Place<'_>,
        frame: &Frame<'_>,
        node: &NodeProto,
    ) -> Result<Vec<HostValue>, RunError> {
        let graph = function.graph();
        let mut slots = BTreeMap::new();
        for (info, name) in graph.input.iter().zip(&node.input) {
            if name.is_empty() {
                continue;
            }
            // What is no name of a frame is a constant of the model.
            let known = frame.find(name).is_none_or(|slot| slot.known);
            let value = self.result(model, place, frame, name)?;
            slots.insert(info.name.clone().unwrap_or_default(), Slot { value, known });
        }
        let path = place.path_of(node);
        let inside = Frame { parent: None, slots };
        self.walk(function, Place { graphs: &[graph], path: &path }, inside)
    }

    /// The function that a node calls, as a model of its own.
    pub(super) fn function(
        &mut self,
        model: &Model,
        place: Place<'_>,
        node: &NodeProto,
    ) -> Option<Rc<Model>> {
        if !model.has_functions() {
            return None;
        }
        let path = place.path_of(node);
        if let Some(known) = self.functions.get(&path) {
            return Some(Rc::clone(known));
        }
        let function = Rc::new(model.function(node)?);
        self.functions.insert(path, Rc::clone(&function));
        Some(function)
    }
}

fn subgraph<'m>(
    place: Place<'_>,
    node: &'m NodeProto,
    name: &str,
) -> Result<&'m GraphProto, RunError> {
    attribute(node, name).and_then(|attr| attr.g.as_ref()).ok_or_else(|| RunError::Control {
        node: place.path_of(node),
        reason: format!("it has no graph `{name}`"),
    })
}

/// Adds what an iteration gives beyond its states.
fn collect(
    scans: &mut [Vec<Tensor>],
    results: impl Iterator<Item = HostValue>,
) -> Result<(), String> {
    for (scan, value) in scans.iter_mut().zip(results) {
        match value {
            HostValue::Tensor(tensor) => scan.push(tensor),
            other => return Err(format!("it collects {other}")),
        }
    }
    Ok(())
}

fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    let found = usize::try_from(from_front).ok().filter(|&at| at < rank);
    found.ok_or_else(|| format!("axis {axis} of {rank} axes"))
}

/// Bytes of an element that is whole bytes.
fn element_bytes(dtype: DType) -> Result<usize, String> {
    match dtype.bytes_for(2) == 2 * dtype.bytes_for(1) {
        true => Ok(dtype.bytes_for(1)),
        false => {
            Err(format!("{dtype} shares its bytes among elements, which the host does not cut"))
        }
    }
}

/// The slice of a tensor at an index of an axis, without that axis.
fn slice(tensor: &Tensor, axis: usize, index: usize) -> Result<Tensor, String> {
    let n_outer: usize = tensor.extents[..axis].iter().product();
    let n_inner = tensor.extents[axis + 1..].iter().product::<usize>();
    let n_bytes = n_inner * element_bytes(tensor.dtype)?;
    let mut bytes = Vec::with_capacity(n_outer * n_bytes);
    for outer in 0..n_outer {
        let from = (outer * tensor.extents[axis] + index) * n_bytes;
        bytes.extend_from_slice(&tensor.bytes[from..from + n_bytes]);
    }
    let mut extents = tensor.extents.clone();
    extents.remove(axis);
    Ok(Tensor::new(tensor.dtype, &extents, bytes))
}

/// Slices along a new axis.
fn stack(slices: &[Tensor], axis: usize) -> Result<Tensor, String> {
    let Some(first) = slices.first() else {
        return Err("it ran 0 times and collects slices, whose shape nobody knows".into());
    };
    if let Some(other) = slices.iter().find(|slice| slice.ty() != first.ty()) {
        return Err(format!("it collects {} and {}", first.ty(), other.ty()));
    }
    let n_outer: usize = first.extents[..axis].iter().product();
    let n_bytes = first.extents[axis..].iter().product::<usize>() * element_bytes(first.dtype)?;
    let mut bytes = Vec::with_capacity(slices.len() * n_outer * n_bytes);
    for outer in 0..n_outer {
        for slice in slices {
            bytes.extend_from_slice(&slice.bytes[outer * n_bytes..(outer + 1) * n_bytes]);
        }
    }
    let mut extents = first.extents.clone();
    extents.insert(axis, slices.len());
    Ok(Tensor::new(first.dtype, &extents, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_an_axis_are_put_together_again() {
        let data: Vec<i64> = (0..24).collect();
        let tensor = Tensor::i64(&[2, 3, 4], &data);
        for axis in 0..3 {
            let n = tensor.extents[axis];
            let slices: Vec<Tensor> =
                (0..n).map(|index| slice(&tensor, axis, index).unwrap()).collect();
            assert_eq!(stack(&slices, axis).unwrap(), tensor);
        }
        assert_eq!(slice(&tensor, 1, 2).unwrap().to_i64(), [8, 9, 10, 11, 20, 21, 22, 23]);
        assert!(stack(&[], 0).is_err());
        assert!(axis(-4, 3).is_err() && axis(3, 3).is_err());
        assert_eq!(axis(-1, 3), Ok(2));
    }
}
